/* Work on many numbers in one pass, where torch needs several: what raffed/core/kernels/single_pass.py calls.

   Both functions give the bits of torch's operations. Between the multiplication and the addition of round_and_add the product is
   rounded to a whole number, so that a compiler has nothing to fuse. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdint.h>

#define BLOCK 8

#if defined(__x86_64__)
#include <immintrin.h>
static int usable(void) { return __builtin_cpu_supports("avx2") != 0; }

/* into[i] += values[i] * scale, the product rounded to the nearest whole number, a half to an even one. */
__attribute__((target("avx2"))) static void round_and_add(double *into, const float *values, int64_t count, double scale) {
    const __m256d by = _mm256_set1_pd(scale);
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        __m256d product = _mm256_mul_pd(_mm256_cvtps_pd(_mm_loadu_ps(values + i)), by);
        product = _mm256_round_pd(product, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_storeu_pd(into + i, _mm256_add_pd(_mm256_loadu_pd(into + i), product));
    }
    for (; i < count; i++) {
        __m128d product = _mm_mul_sd(_mm_set_sd((double)values[i]), _mm_set_sd(scale));
        product = _mm_round_sd(product, product, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        into[i] += _mm_cvtsd_f64(product);
    }
}

/* A block of 8 x 8 numbers: x with rows of `columns` numbers, out with rows of `rows`. */
__attribute__((target("avx2"))) static void transpose_block(const float *x, float *out, int64_t rows, int64_t columns) {
    __m256 r[BLOCK], pairs[BLOCK];
    for (int k = 0; k < BLOCK; k++) r[k] = _mm256_loadu_ps(x + k * columns);
    for (int k = 0; k < BLOCK; k += 2) {
        pairs[k] = _mm256_unpacklo_ps(r[k], r[k + 1]);
        pairs[k + 1] = _mm256_unpackhi_ps(r[k], r[k + 1]);
    }
    for (int k = 0; k < BLOCK; k += 4)
        for (int half = 0; half < 2; half++) { /* r[k + i] has column i of rows k to k + 3, and column i + 4 */
            r[k + 2 * half] = _mm256_shuffle_ps(pairs[k + half], pairs[k + half + 2], 0x44);
            r[k + 2 * half + 1] = _mm256_shuffle_ps(pairs[k + half], pairs[k + half + 2], 0xee);
        }
    for (int k = 0; k < 4; k++) {
        _mm256_storeu_ps(out + k * rows, _mm256_permute2f128_ps(r[k], r[k + 4], 0x20));
        _mm256_storeu_ps(out + (k + 4) * rows, _mm256_permute2f128_ps(r[k], r[k + 4], 0x31));
    }
}
#else
#include <math.h>

static int usable(void) { return 1; }

static void round_and_add(double *into, const float *values, int64_t count, double scale) {
    for (int64_t i = 0; i < count; i++) {
        double product = (double)values[i] * scale;
        into[i] += nearbyint(product);
    }
}

/* A block of 8 x 8 numbers: x with rows of `columns` numbers, out with rows of `rows`. */
static void transpose_block(const float *x, float *out, int64_t rows, int64_t columns) {
    for (int i = 0; i < BLOCK; i++)
        for (int k = 0; k < BLOCK; k++) out[k * rows + i] = x[i * columns + k];
}
#endif

/* The part of x from (row, column) to (to_row, to_column), number by number. */
static void transpose_part(const float *x, float *out, int64_t rows, int64_t columns, int64_t row, int64_t to_row, int64_t column, int64_t to_column) {
    for (int64_t i = row; i < to_row; i++)
        for (int64_t k = column; k < to_column; k++) out[k * rows + i] = x[i * columns + k];
}

/* x [rows, columns] -> out [columns, rows] */
static void transpose(const float *x, float *out, int64_t rows, int64_t columns) {
    int64_t whole_rows = rows - rows % BLOCK, whole_columns = columns - columns % BLOCK;
    for (int64_t k = 0; k < whole_columns; k += BLOCK)
        for (int64_t i = 0; i < whole_rows; i += BLOCK) transpose_block(x + i * columns + k, out + k * rows + i, rows, columns);
    transpose_part(x, out, rows, columns, whole_rows, rows, 0, whole_columns);
    transpose_part(x, out, rows, columns, 0, rows, whole_columns, columns);
}

/* Python: addresses and sizes; single_pass.py answers for both. */
static PyObject *py_round_and_add(PyObject *self, PyObject *args) {
    unsigned long long into, values;
    long long count;
    double scale;
    if (!PyArg_ParseTuple(args, "KKLd", &into, &values, &count, &scale)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    round_and_add((double *)(uintptr_t)into, (const float *)(uintptr_t)values, count, scale);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_transpose(PyObject *self, PyObject *args) {
    unsigned long long x, out;
    long long rows, columns;
    if (!PyArg_ParseTuple(args, "KKLL", &x, &out, &rows, &columns)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    transpose((const float *)(uintptr_t)x, (float *)(uintptr_t)out, rows, columns);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_usable(PyObject *self, PyObject *none) { return PyBool_FromLong(usable()); }

static PyMethodDef methods[] = {
    {"round_and_add", py_round_and_add, METH_VARARGS, "round_and_add(into, values, count, scale): addresses of float64 and float32, a size, a factor"},
    {"transpose", py_transpose, METH_VARARGS, "transpose(x, out, rows, columns): addresses of float32, sizes of x"},
    {"usable", py_usable, METH_NOARGS, "usable(): whether this processor has the instructions"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_single_pass", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__single_pass(void) { return PyModule_Create(&module); }
