/* Convolutions of stride 1 without groups, float32, channels last: what raffed/core/kernels/convolution.py calls.

   Images are [n, h, w, pixel] with c channels that count, results are [n, oh, ow, out] with o that count; the channels behind
   them hold 0. `out` is a multiple of 8. Several clients lie behind each other, each with weights of its own.

   The numbers of a row of the kernel, kw * c of them, lie in one run of the image. So the products of an image and the kernel
   are read from where they lie, with no copy of the image for each place of the kernel. Twelve sums are kept in registers.

   Each sum is one chain of fused multiply-adds in a fixed order, so its bits depend neither on how many vectors a processor
   has nor on their width, nor on the compiler. Between strips of rows and between images the sums of a gradient are added in
   their order. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#define WIDE __attribute__((target("avx2,fma")))
#else
#define WIDE
#endif
#define INLINE WIDE static inline __attribute__((always_inline))
typedef float F8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef long long N;
#define UNROLL _Pragma("GCC unroll 12")

/* a * b + c, rounded once. It is written out because GCC does not fuse every `c += a * b`: it avoids long chains when it tunes
   for some processors, and fuses nothing with -O1. */
#if defined(__x86_64__) || defined(__i386__)
INLINE F8 fused(float a, F8 b, F8 c) { return (F8)_mm256_fmadd_ps(_mm256_set1_ps(a), (__m256)b, (__m256)c); }
#else
INLINE F8 fused(float a, F8 b, F8 c) { return c + a * b; }
#endif

/* One row of T neighbouring outputs, 8 M channels each, from rows first to last of the kernel. */
INLINE void tile(const int T, const int M, const float *x, N row, N pixel, const float *w, const float *b, float *y, N out, N first, N last, N kw, N c) {
    F8 acc[12 * 2];
    UNROLL for (int t = 0; t < T; t++) UNROLL for (int m = 0; m < M; m++) acc[t * M + m] = *(const F8 *)(b + 8 * m);
    for (N i = first; i < last; i++)
        for (N j = 0; j < kw; j++) {
            const float *from = x + i * row + j * pixel, *by = w + (i * kw + j) * c * 8 * M;
            for (N k = 0; k < c; k++, by += 8 * M) {
                F8 v[2];
                UNROLL for (int m = 0; m < M; m++) v[m] = *(const F8 *)(by + 8 * m);
                UNROLL for (int t = 0; t < T; t++) UNROLL for (int m = 0; m < M; m++) acc[t * M + m] = fused(from[t * pixel + k], v[m], acc[t * M + m]);
            }
        }
    UNROLL for (int t = 0; t < T; t++) UNROLL for (int m = 0; m < M; m++) *(F8 *)(y + t * out + 8 * m) = acc[t * M + m];
}
/* The contiguous case takes the kernel's columns and channels as one run: c is kw * c, kw is 1, and pixel stays. */
#define CASE(T, M) case T: tile(T, M, x, row, pixel, w, b, y, out, first, last, kw, c); break;
INLINE void row1(N t, const float *x, N row, N pixel, const float *w, const float *b, float *y, N out, N first, N last, N kw, N c) {
    switch (t) { CASE(1, 1) CASE(2, 1) CASE(3, 1) CASE(4, 1) CASE(5, 1) CASE(6, 1) CASE(7, 1) CASE(8, 1) CASE(9, 1) CASE(10, 1) CASE(11, 1) CASE(12, 1) }
}
INLINE void row2(N t, const float *x, N row, N pixel, const float *w, const float *b, float *y, N out, N first, N last, N kw, N c) {
    switch (t) { CASE(1, 2) CASE(2, 2) CASE(3, 2) CASE(4, 2) CASE(5, 2) CASE(6, 2) }
}

typedef struct { N n, h, w, c, pixel, o, out, kh, kw, ph, pw; } Shape; /* c and o channels in pixels of `pixel` and `out` */

/* src [h, w, c] inside zeros, in dst [h + 2 ph, w + 2 pw, c]; ph, pw >= 0. */
static void framed(const float *src, float *dst, N h, N w, N c, N ph, N pw) {
    N wide = (w + 2 * pw) * c;
    memset(dst, 0, ph * wide * sizeof(float));
    dst += ph * wide;
    for (N i = 0; i < h; i++, dst += wide, src += w * c) {
        memset(dst, 0, pw * c * sizeof(float));
        memcpy(dst + pw * c, src, w * c * sizeof(float));
        memset(dst + (pw + w) * c, 0, pw * c * sizeof(float));
    }
    memset(dst, 0, ph * wide * sizeof(float));
}

/* y [n, oh, ow, out] = x * w + b, w packed [out / 8M][kh][kw][c][8M]; zero rows of the frame are left out. */
WIDE static void correlate(const float *x, const float *w, const float *b, float *y, Shape s, float *frame) {
    N tall = s.h + 2 * s.ph, wide = s.w + 2 * s.pw, oh = tall - s.kh + 1, ow = wide - s.kw + 1;
    N m = s.out % 16 ? 1 : 2, most = 12 / m, tiles = (ow + most - 1) / most;
    N kw = s.kw, c = s.c;
    if (s.c == s.pixel) c *= kw, kw = 1;
    for (N n = 0; n < s.n; n++, x += s.h * s.w * s.pixel, y += oh * ow * s.out) {
        const float *from = x;
        if (s.ph || s.pw) framed(x, frame, s.h, s.w, s.pixel, s.ph, s.pw), from = frame;
        for (N block = 0; block < s.out; block += 8 * m) {
            const float *by = w + block * s.kh * s.kw * s.c;
            for (N i = 0; i < oh; i++) {
                N first = i < s.ph ? s.ph - i : 0, last = tall - s.ph - i < s.kh ? tall - s.ph - i : s.kh;
                const float *at = from + i * wide * s.pixel;
                for (N tile = 0, j = 0; tile < tiles; tile++) {
                    N t = (ow - j) / (tiles - tile);
                    float *to = y + (i * ow + j) * s.out + block;
                    if (m == 1) row1(t, at + j * s.pixel, wide * s.pixel, s.pixel, by, b + block, to, s.out, first, last, kw, c);
                    else row2(t, at + j * s.pixel, wide * s.pixel, s.pixel, by, b + block, to, s.out, first, last, kw, c);
                    j += t;
                }
            }
        }
    }
}

/* acc[q][r][m] += sum over rows i and columns j of x[i + q][j][r] * g[i][j][8 m ...] */
INLINE void outer(const int Q, const int R, const int M, const float *x, N row, N pixel, const float *g, N out, N oh, N ow, float *into, N next, N step) {
    F8 acc[12];
    UNROLL for (int q = 0; q < Q; q++) UNROLL for (int r = 0; r < R; r++) UNROLL for (int m = 0; m < M; m++) acc[(q * R + r) * M + m] = (F8){0};
    for (N i = 0; i < oh; i++) {
        const float *above = x + i * row, *below = above + row;
        for (N j = 0; j < ow; j++, g += out, above += pixel, below += pixel) {
            F8 v[2];
            UNROLL for (int m = 0; m < M; m++) v[m] = *(const F8 *)(g + 8 * m);
            UNROLL for (int r = 0; r < R; r++) UNROLL for (int m = 0; m < M; m++) acc[r * M + m] = fused(above[r], v[m], acc[r * M + m]);
            if (Q == 2) UNROLL for (int r = 0; r < R; r++) UNROLL for (int m = 0; m < M; m++) acc[(R + r) * M + m] = fused(below[r], v[m], acc[(R + r) * M + m]);
        }
    }
    UNROLL for (int q = 0; q < Q; q++) UNROLL for (int r = 0; r < R; r++) UNROLL for (int m = 0; m < M; m++)
        *(F8 *)(into + q * next + r * step + 8 * m) += acc[(q * R + r) * M + m];
}
#undef CASE
#define CASE(R, Q, M) case R: outer(Q, R, M, x, row, pixel, g, out, oh, ow, into, next, step); break;
#define ARGS const float *x, N row, N pixel, const float *g, N out, N oh, N ow, float *into, N next, N step
INLINE void block21(N r, ARGS) { switch (r) { CASE(1, 2, 1) CASE(2, 2, 1) CASE(3, 2, 1) CASE(4, 2, 1) CASE(5, 2, 1) CASE(6, 2, 1) } }
INLINE void block11(N r, ARGS) { switch (r) { CASE(1, 1, 1) CASE(2, 1, 1) CASE(3, 1, 1) CASE(4, 1, 1) CASE(5, 1, 1) CASE(6, 1, 1) } }
INLINE void block12(N r, ARGS) { switch (r) { CASE(1, 1, 2) CASE(2, 1, 2) CASE(3, 1, 2) CASE(4, 1, 2) CASE(5, 1, 2) CASE(6, 1, 2) } }

/* into [kh][kw * c][out] += the gradient of the weights. */
#define STRIP 2048 /* floats of the gradient in one strip of rows */
WIDE static void gather(const float *x, const float *g, float *into, Shape s, float *frame) {
    N tall = s.h + 2 * s.ph, wide = s.w + 2 * s.pw, oh = tall - s.kh + 1, ow = wide - s.kw + 1;
    N m = s.out % 16 ? 1 : 2, kw = s.kw, c = s.c, row = wide * s.pixel;
    N next = s.kw * s.c * s.out, strip = STRIP / (ow * 8 * m);
    if (strip < 1) strip = 1;
    if (s.c == s.pixel) c *= kw, kw = 1;
    N blocks = (c + 5) / 6;
    for (N n = 0; n < s.n; n++, x += s.h * s.w * s.pixel, g += oh * ow * s.out) {
        const float *from = x;
        if (s.ph || s.pw) framed(x, frame, s.h, s.w, s.pixel, s.ph, s.pw), from = frame;
        for (N i = 0; i < oh; i += strip) {
            N rows = oh - i < strip ? oh - i : strip;
            for (N o = 0; o < s.out; o += 8 * m)
                for (N k = 0; k < s.kh;) {
                    N q = m == 1 && k + 1 < s.kh ? 2 : 1;
                    for (N j = 0; j < kw; j++)
                        for (N block = 0, at = 0; block < blocks; block++) {
                            N r = (c - at) / (blocks - block);
                            const float *px = from + (i + k) * row + j * s.pixel + at, *pg = g + i * ow * s.out + o;
                            float *to = into + k * next + (j * c + at) * s.out + o;
                            if (m == 2) block12(r, px, row, s.pixel, pg, s.out, rows, ow, to, next, s.out);
                            else if (q == 2) block21(r, px, row, s.pixel, pg, s.out, rows, ow, to, next, s.out);
                            else block11(r, px, row, s.pixel, pg, s.out, rows, ow, to, next, s.out);
                            at += r;
                        }
                    k += q;
                }
        }
    }
}

/* sum [out] += the sum of an image's gradient [places, out]. */
WIDE static void total(const float *g, float *sum, N places, N out) {
    for (N o = 0; o < out; o += 8) {
        F8 acc = (F8){0};
        for (N k = 0; k < places; k++) acc += *(const F8 *)(g + k * out + o);
        *(F8 *)(sum + o) += acc;
    }
}

/* w [o, c, kh, kw] -> [out / v][kh][kw][c][v], v = 8 or 16 */
static void packed(const float *w, float *p, Shape s) {
    N v = s.out % 16 ? 8 : 16, taps = s.kh * s.kw;
    memset(p, 0, s.out * taps * s.c * sizeof(float));
    for (N o = 0; o < s.o; o++)
        for (N c = 0; c < s.c; c++)
            for (N k = 0; k < taps; k++) p[((o / v * taps + k) * s.c + c) * v + o % v] = w[(o * s.c + c) * taps + k];
}
/* The same turned round, for the gradient of x: its outputs are the channels of x (pixel), its channels those of y. */
static void turned(const float *w, float *p, Shape s) {
    N v = s.pixel % 16 ? 8 : 16, taps = s.kh * s.kw;
    memset(p, 0, s.pixel * taps * s.o * sizeof(float));
    for (N o = 0; o < s.o; o++)
        for (N c = 0; c < s.c; c++)
            for (N k = 0; k < taps; k++) p[((c / v * taps + taps - 1 - k) * s.o + o) * v + c % v] = w[(o * s.c + c) * taps + k];
}

static int forward(const float *x, const float *w, const float *b, float *y, N g, Shape s) {
    N tall = s.h + 2 * s.ph, wide = s.w + 2 * s.pw, oh = tall - s.kh + 1, ow = wide - s.kw + 1, size = s.kh * s.kw * s.c;
    float *p = malloc((size * s.out + s.out + tall * wide * s.pixel) * sizeof(float));
    if (!p) return 0;
    float *bias = p + size * s.out, *frame = bias + s.out;
    for (N i = 0; i < g; i++) {
        packed(w + i * s.o * size, p, s);
        memset(bias, 0, s.out * sizeof(float));
        if (b) memcpy(bias, b + i * s.o, s.o * sizeof(float));
        correlate(x + i * s.n * s.h * s.w * s.pixel, p, bias, y + i * s.n * oh * ow * s.out, s, frame);
    }
    free(p);
    return 1;
}
static int to_input(const float *gy, const float *w, float *gx, N g, Shape s) {
    N oh = s.h + 2 * s.ph - s.kh + 1, ow = s.w + 2 * s.pw - s.kw + 1, size = s.kh * s.kw * s.o;
    Shape t = {s.n, oh, ow, s.o, s.out, s.c, s.pixel, s.kh, s.kw, s.kh - 1 - s.ph, s.kw - 1 - s.pw};
    float *p = malloc((size * s.pixel + s.pixel + (oh + 2 * t.ph) * (ow + 2 * t.pw) * s.out) * sizeof(float));
    if (!p) return 0;
    float *none = p + size * s.pixel, *frame = none + s.pixel;
    memset(none, 0, s.pixel * sizeof(float));
    for (N i = 0; i < g; i++) {
        turned(w + i * s.o * s.c * s.kh * s.kw, p, s);
        correlate(gy + i * s.n * oh * ow * s.out, p, none, gx + i * s.n * s.h * s.w * s.pixel, t, frame);
    }
    free(p);
    return 1;
}
static int to_weight(const float *x, const float *gy, float *gw, float *gb, N g, Shape s) {
    N tall = s.h + 2 * s.ph, wide = s.w + 2 * s.pw, oh = tall - s.kh + 1, ow = wide - s.kw + 1, taps = s.kh * s.kw;
    float *p = malloc((taps * s.c * s.out + s.out + tall * wide * s.pixel) * sizeof(float));
    if (!p) return 0;
    float *sum = p + taps * s.c * s.out, *frame = sum + s.out;
    for (N i = 0; i < g; i++, gw += s.o * s.c * taps) {
        const float *mine = gy + i * s.n * oh * ow * s.out;
        memset(p, 0, taps * s.c * s.out * sizeof(float));
        gather(x + i * s.n * s.h * s.w * s.pixel, mine, p, s, frame);
        for (N o = 0; o < s.o; o++)
            for (N c = 0; c < s.c; c++)
                for (N k = 0; k < taps; k++) gw[(o * s.c + c) * taps + k] = p[(k * s.c + c) * s.out + o];
        memset(sum, 0, s.out * sizeof(float));
        for (N n = 0; n < s.n; n++, mine += oh * ow * s.out) total(mine, sum, oh * ow, s.out);
        memcpy(gb + i * s.o, sum, s.o * sizeof(float));
    }
    free(p);
    return 1;
}

/* Python: addresses and sizes; convolution.py answers for both. */
#define INTO &g, &s.n, &s.h, &s.w, &s.c, &s.pixel, &s.o, &s.out, &s.kh, &s.kw, &s.ph, &s.pw
#define AT(T, a) ((T *)(uintptr_t)(a))
#define CALLED(made)                                                       \
    Py_BEGIN_ALLOW_THREADS                                                 \
    done = made;                                                           \
    Py_END_ALLOW_THREADS                                                   \
    if (!done) return PyErr_NoMemory();                                    \
    Py_RETURN_NONE;

static PyObject *py_forward(PyObject *self, PyObject *args) {
    unsigned long long x, w, b, y;
    long long g;
    Shape s;
    int done;
    if (!PyArg_ParseTuple(args, "KKKKLLLLLLLLLLLL", &x, &w, &b, &y, INTO)) return NULL;
    CALLED(forward(AT(const float, x), AT(const float, w), AT(const float, b), AT(float, y), g, s))
}

static PyObject *py_to_input(PyObject *self, PyObject *args) {
    unsigned long long gy, w, gx;
    long long g;
    Shape s;
    int done;
    if (!PyArg_ParseTuple(args, "KKKLLLLLLLLLLLL", &gy, &w, &gx, INTO)) return NULL;
    CALLED(to_input(AT(const float, gy), AT(const float, w), AT(float, gx), g, s))
}

static PyObject *py_to_weight(PyObject *self, PyObject *args) {
    unsigned long long x, gy, gw, gb;
    long long g;
    Shape s;
    int done;
    if (!PyArg_ParseTuple(args, "KKKKLLLLLLLLLLLL", &x, &gy, &gw, &gb, INTO)) return NULL;
    CALLED(to_weight(AT(const float, x), AT(const float, gy), AT(float, gw), AT(float, gb), g, s))
}

#if defined(__x86_64__) || defined(__i386__)
static int usable(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#elif defined(__aarch64__)
static int usable(void) { return 1; }
#else
static int usable(void) { return 0; }
#endif
static PyObject *py_usable(PyObject *self, PyObject *none) { return PyBool_FromLong(usable()); }

static PyMethodDef methods[] = {
    {"forward", py_forward, METH_VARARGS, "forward(x, w, b, y, clients, n, h, w, c, pixel, o, out, kh, kw, ph, pw): addresses (b may be 0), then sizes"},
    {"to_input", py_to_input, METH_VARARGS, "to_input(gy, w, gx, clients, ...): the gradient of the images; pixel is a multiple of 8"},
    {"to_weight", py_to_weight, METH_VARARGS, "to_weight(x, gy, gw, gb, clients, ...): the gradients of weights and biases"},
    {"usable", py_usable, METH_NOARGS, "usable(): whether this processor has the instructions"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_convolution", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__convolution(void) { return PyModule_Create(&module); }
