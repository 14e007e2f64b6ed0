#ifndef _COMMON_H_
#define _COMMON_H_
#ifdef RD_WG_SIZE
#define TILE RD_WG_SIZE
#else
#define TILE 16
#endif
#ifdef DOUBLE
typedef double FLOAT;
#else
typedef float FLOAT;
#endif
typedef struct { int w, h; size_t bytes; FLOAT *cells; struct timeval made; } grid_t;
static double seconds(void) { struct timeval t; gettimeofday(&t, 0); return t.tv_sec + 1e-6 * t.tv_usec; }
static int usage(const char *name) { fprintf(stderr, "%s N STEPS\n", name); return 1; }
static grid_t grid_new(int w, int h) {
  grid_t g = {w, h, sizeof(FLOAT) * w * h, NULL, {0, 0}};
  g.cells = (FLOAT *)malloc(g.bytes);
  gettimeofday(&g.made, 0);
  for (int i = 0; i < w * h; i++) g.cells[i] = (FLOAT)((i * 13) % 31);
  return g;
}
#endif
