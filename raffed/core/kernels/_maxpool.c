/* Max-pooling over windows of 2 x 2, channels last, forwards and backwards: what raffed/core/kernels/maxpool.py calls.

   torch's kernels store an index of 64 bits for each window, clear the gradient and then scatter into it one number at a time.
   Here a window's place (0 to 3, in the order in which torch looks: the first of the largest wins, a NaN wins over all) is one
   byte, and each number of the gradient is written once, by vectors. Nothing is added, so the bits are torch's own.
   With a ReLU behind the pool a window without a positive number has place 4: no gradient. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define VECTOR(T, LANES, NAME) typedef T NAME __attribute__((vector_size(sizeof(T) * LANES), aligned(1), may_alias));
VECTOR(float, 8, F8)
VECTOR(int32_t, 8, I8)
VECTOR(int16_t, 8, H8)
VECTOR(int16_t, 16, H16)
VECTOR(uint8_t, 8, B8)
VECTOR(uint8_t, 16, B16)

#define PICK(t, a, b) (((t) & (a)) | (~(t) & (b))) /* a where t is all ones, b where it is 0 */

/* Eight float32 windows: a b above, c d below. */
#define LOOK_F(p, n)                                                       \
    v = *(const F8 *)(p);                                                  \
    t = (v > m) | (v != v);                                                \
    m = (F8)PICK(t, (I8)v, (I8)m);                                         \
    k = PICK(t, n, k);

INLINE void window_f8(const float *a, const float *b, const float *c, const float *d, float *out, uint8_t *place, int relu) {
    F8 m = *(const F8 *)a, v;
    I8 k = (I8){0}, t;
    LOOK_F(b, 1)
    LOOK_F(c, 2)
    LOOK_F(d, 3)
    if (relu) {
        t = m <= 0.0f; /* not of a NaN, which a ReLU lets through */
        k = PICK(t, 4, k);
        t = m < 0.0f; /* -0 stays */
        m = (F8)(~t & (I8)m);
    }
    *(F8 *)out = m;
    *(B8 *)place = __builtin_convertvector(k, B8);
}

INLINE void spread_f8(const float *g, const uint8_t *place, float *a, float *b, float *c, float *d) {
    I8 k = __builtin_convertvector(*(const B8 *)place, I8), v = *(const I8 *)g;
    *(I8 *)a = (k == 0) & v;
    *(I8 *)b = (k == 1) & v;
    *(I8 *)c = (k == 2) & v;
    *(I8 *)d = (k == 3) & v;
}

/* The same for bfloat16, compared as integers in the order of the numbers: both zeros are 0, every NaN the largest. */
#define NOT_A_NUMBER 0x7fff
#define KEY(H, key, bits)                                                  \
    {                                                                      \
        H negative = (bits) < 0, size = (bits) & 0x7fff, none;             \
        key = (size ^ negative) - negative;                                \
        none = size > 0x7f80;                                              \
        key = PICK(none, NOT_A_NUMBER, key);                               \
    }
#define LOOK_H(H, p, n)                                                    \
    v = *(const H *)(p);                                                   \
    KEY(H, w, v)                                                           \
    t = (w > m) | (w == NOT_A_NUMBER);                                     \
    m = PICK(t, w, m);                                                     \
    r = PICK(t, v, r);                                                     \
    k = PICK(t, n, k);
#define WINDOW_H(NAME, H, B)                                               \
    INLINE void NAME(const int16_t *a, const int16_t *b, const int16_t *c, const int16_t *d, int16_t *out, uint8_t *place, int relu) { \
        H r = *(const H *)a, k = (H){0}, v, m, w, t;                       \
        KEY(H, m, r)                                                       \
        LOOK_H(H, b, 1)                                                    \
        LOOK_H(H, c, 2)                                                    \
        LOOK_H(H, d, 3)                                                    \
        if (relu) {                                                        \
            t = m <= 0;                                                    \
            k = PICK(t, 4, k);                                             \
            t = m < 0;                                                     \
            r = ~t & r;                                                    \
        }                                                                  \
        *(H *)out = r;                                                     \
        *(B *)place = __builtin_convertvector(k, B);                       \
    }
#define SPREAD_H(NAME, H, B)                                               \
    INLINE void NAME(const int16_t *g, const uint8_t *place, int16_t *a, int16_t *b, int16_t *c, int16_t *d) { \
        H k = __builtin_convertvector(*(const B *)place, H), v = *(const H *)g; \
        *(H *)a = (k == 0) & v;                                            \
        *(H *)b = (k == 1) & v;                                            \
        *(H *)c = (k == 2) & v;                                            \
        *(H *)d = (k == 3) & v;                                            \
    }
WINDOW_H(window_h8, H8, B8)
WINDOW_H(window_h16, H16, B16)
SPREAD_H(spread_h8, H8, B8)
SPREAD_H(spread_h16, H16, B16)

/* x [n, h, w, c] -> y, place [n, h/2, w/2, c]; a last row and column that fill no window are left out. */
#define FORWARD(NAME, T, LANES, WINDOW)                                    \
    INLINE void NAME(const T *x, T *y, uint8_t *place, int64_t n, int64_t h, int64_t w, int64_t c, int relu) { \
        for (int64_t i = 0; i < n; i++)                                    \
            for (int64_t row = 0; row + 1 < h; row += 2) {                 \
                const T *above = x + (i * h + row) * w * c, *below = above + w * c; \
                for (int64_t column = 0; column + 1 < w; column += 2, above += 2 * c, below += 2 * c, y += c, place += c) \
                    for (int64_t k = 0; k < c; k += LANES)                 \
                        WINDOW(above + k, above + c + k, below + k, below + c + k, y + k, place + k, relu); \
            }                                                              \
    }
/* g, place [n, h/2, w/2, c] -> x [n, h, w, c], all of it written. */
#define BACKWARD(NAME, T, LANES, SPREAD)                                   \
    INLINE void NAME(const T *g, const uint8_t *place, T *x, int64_t n, int64_t h, int64_t w, int64_t c) { \
        for (int64_t i = 0; i < n; i++) {                                  \
            for (int64_t row = 0; row + 1 < h; row += 2) {                 \
                T *above = x + (i * h + row) * w * c, *below = above + w * c; \
                for (int64_t column = 0; column + 1 < w; column += 2, above += 2 * c, below += 2 * c, g += c, place += c) \
                    for (int64_t k = 0; k < c; k += LANES)                 \
                        SPREAD(g + k, place + k, above + k, above + c + k, below + k, below + c + k); \
                if (w % 2) {                                               \
                    memset(above, 0, c * sizeof(T));                       \
                    memset(below, 0, c * sizeof(T));                       \
                }                                                          \
            }                                                              \
            if (h % 2) memset(x + (i * h + h - 1) * w * c, 0, w * c * sizeof(T)); \
        }                                                                  \
    }
FORWARD(forward_f8, float, 8, window_f8)
FORWARD(forward_h8, int16_t, 8, window_h8)
FORWARD(forward_h16, int16_t, 16, window_h16)
BACKWARD(backward_f8, float, 8, spread_f8)
BACKWARD(backward_h8, int16_t, 8, spread_h8)
BACKWARD(backward_h16, int16_t, 16, spread_h16)

/* Widths that networks have are constants, for which a compiler unrolls. */
#define BY_WIDTH(CALL16, CALL8)                                            \
    switch (c) {                                                           \
        case 8: CALL8(8); break;                                           \
        case 16: CALL16(16); break;                                        \
        case 32: CALL16(32); break;                                        \
        case 64: CALL16(64); break;                                        \
        default:                                                           \
            if (c % 16 == 0) CALL16(c);                                    \
            else CALL8(c);                                                 \
    }

#if defined(__x86_64__) || defined(__i386__)
#define WIDE __attribute__((target("avx2")))
static int usable(void) { return __builtin_cpu_supports("avx2") != 0; }
#else
#define WIDE
static int usable(void) { return 1; }
#endif

#define F(C) (relu ? forward_f8(x, y, place, n, h, w, C, 1) : forward_f8(x, y, place, n, h, w, C, 0))
#define G16(C) (relu ? forward_h16(x, y, place, n, h, w, C, 1) : forward_h16(x, y, place, n, h, w, C, 0))
#define G8(C) (relu ? forward_h8(x, y, place, n, h, w, C, 1) : forward_h8(x, y, place, n, h, w, C, 0))
WIDE static void forward_single(const float *x, float *y, uint8_t *place, int64_t n, int64_t h, int64_t w, int64_t c, int relu) {
    BY_WIDTH(F, F)
}
WIDE static void forward_brain(const int16_t *x, int16_t *y, uint8_t *place, int64_t n, int64_t h, int64_t w, int64_t c, int relu) {
    BY_WIDTH(G16, G8)
}
#undef F
#define F(C) backward_f8(g, place, x, n, h, w, C)
#undef G16
#define G16(C) backward_h16(g, place, x, n, h, w, C)
#undef G8
#define G8(C) backward_h8(g, place, x, n, h, w, C)
WIDE static void backward_single(const float *g, const uint8_t *place, float *x, int64_t n, int64_t h, int64_t w, int64_t c) {
    BY_WIDTH(F, F)
}
WIDE static void backward_brain(const int16_t *g, const uint8_t *place, int16_t *x, int64_t n, int64_t h, int64_t w, int64_t c) {
    BY_WIDTH(G16, G8)
}

/* Python: addresses and sizes; maxpool.py answers for both. */
static PyObject *py_forward(PyObject *self, PyObject *args) {
    unsigned long long x, y, place;
    long long n, h, w, c;
    int brain, relu;
    if (!PyArg_ParseTuple(args, "KKKLLLLpp", &x, &y, &place, &n, &h, &w, &c, &brain, &relu)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (brain) forward_brain((const int16_t *)(uintptr_t)x, (int16_t *)(uintptr_t)y, (uint8_t *)(uintptr_t)place, n, h, w, c, relu);
    else forward_single((const float *)(uintptr_t)x, (float *)(uintptr_t)y, (uint8_t *)(uintptr_t)place, n, h, w, c, relu);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_backward(PyObject *self, PyObject *args) {
    unsigned long long g, place, x;
    long long n, h, w, c;
    int brain;
    if (!PyArg_ParseTuple(args, "KKKLLLLp", &g, &place, &x, &n, &h, &w, &c, &brain)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    if (brain) backward_brain((const int16_t *)(uintptr_t)g, (const uint8_t *)(uintptr_t)place, (int16_t *)(uintptr_t)x, n, h, w, c);
    else backward_single((const float *)(uintptr_t)g, (const uint8_t *)(uintptr_t)place, (float *)(uintptr_t)x, n, h, w, c);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *py_usable(PyObject *self, PyObject *none) { return PyBool_FromLong(usable()); }

static PyMethodDef methods[] = {
    {"forward", py_forward, METH_VARARGS, "forward(x, y, place, n, h, w, c, brain, relu): addresses, sizes, whether bfloat16, whether a ReLU follows"},
    {"backward", py_backward, METH_VARARGS, "backward(g, place, x, n, h, w, c, brain): addresses, sizes, whether bfloat16"},
    {"usable", py_usable, METH_NOARGS, "usable(): whether this processor has the instructions"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_maxpool", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__maxpool(void) { return PyModule_Create(&module); }
