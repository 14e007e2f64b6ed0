static void reference(grid_t *g, int steps) {
  int n = g->w;
  FLOAT *next = (FLOAT *)malloc(g->bytes);
  memcpy(next, g->cells, g->bytes);
  while (steps--) {
    for (int y = 1; y < n - 1; y++)
      for (int x = 1; x < n - 1; x++)
        next[y * n + x] = (FLOAT)0.2 * (g->cells[y * n + x] + g->cells[y * n + x - 1] + g->cells[y * n + x + 1] + g->cells[(y - 1) * n + x] + g->cells[(y + 1) * n + x]);
    FLOAT *s = g->cells; g->cells = next; next = s;
  }
}
