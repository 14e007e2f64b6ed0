// PGM and PPM images, files of numbers and comparisons as the samples' helper_image.h offers them. Ours, from the
// header's interface.
#pragma once
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#ifndef MIN
#define MIN(a, b) ((a < b) ? a : b)
#endif
#ifndef MAX
#define MAX(a, b) ((a > b) ? a : b)
#endif
#include "helper_string.h"

namespace kw_image {
// The next number of a header, behind blanks and comments.
inline bool number(FILE* file, unsigned int* value) {
  for (int c = fgetc(file); c != EOF; c = fgetc(file)) {
    if (c == '#') while (c != '\n' && c != EOF) c = fgetc(file);
    else if (c >= '0' && c <= '9') return ungetc(c, file), fscanf(file, "%u", value) == 1;
  }
  return false;
}
inline bool load(const char* name, std::vector<unsigned char>* data, unsigned int* w, unsigned int* h, unsigned int* channels) {
  FILE* file = fopen(name, "rb");
  char kind[3] = "";
  unsigned int most = 0;
  bool good = file && fscanf(file, "%2s", kind) == 1 && (!strcmp(kind, "P5") || !strcmp(kind, "P6"));
  good = good && number(file, w) && number(file, h) && number(file, &most) && most < 256 && *w < 65536 && *h < 65536;
  if (good) {
    fgetc(file);
    *channels = kind[1] == '5' ? 1 : 3;
    data->resize((size_t)*w * *h * *channels);
    good = fread(data->data(), 1, data->size(), file) == data->size();
  }
  if (file) fclose(file);
  if (!good) std::cerr << "__LoadPPM() : Failed to read file: " << name << std::endl;
  return good;
}
inline bool save(const char* name, const unsigned char* data, unsigned int w, unsigned int h, unsigned int channels) {
  std::ofstream file(name, std::ios::binary);
  if (!data || !w || !h || !file) return false;
  file << (channels == 1 ? "P5\n" : "P6\n") << w << "\n" << h << "\n" << 255 << "\n";
  file.write((const char*)data, (std::streamsize)w * h * channels);
  return file.good();
}
template <class T> T from_byte(unsigned char v) { return sizeof(T) == 1 ? (T)v : (T)(v / 255.0f); }
template <class T> unsigned char to_byte(T v) { return sizeof(T) == 1 ? (unsigned char)v : (unsigned char)(v * 255.0f); }
}  // namespace kw_image

inline bool __loadPPM(const char* file, unsigned char** data, unsigned int* w, unsigned int* h, unsigned int* channels) {
  std::vector<unsigned char> bytes;
  if (!kw_image::load(file, &bytes, w, h, channels)) return false;
  if (!*data) *data = (unsigned char*)malloc(bytes.size());
  memcpy(*data, bytes.data(), bytes.size());
  return true;
}
inline bool __savePPM(const char* file, unsigned char* data, unsigned int w, unsigned int h, unsigned int channels) {
  return kw_image::save(file, data, w, h, channels);
}
template <class T>
inline bool sdkLoadPGM(const char* file, T** data, unsigned int* w, unsigned int* h) {
  std::vector<unsigned char> bytes;
  unsigned int channels = 0;
  if (!kw_image::load(file, &bytes, w, h, &channels)) return false;
  if (!*data) *data = (T*)malloc(sizeof(T) * bytes.size());
  for (size_t i = 0; i < bytes.size(); i++) (*data)[i] = kw_image::from_byte<T>(bytes[i]);
  return true;
}
template <class T>
inline bool sdkLoadPPM4(const char* file, T** data, unsigned int* w, unsigned int* h) {
  std::vector<unsigned char> bytes;
  unsigned int channels = 0;
  if (!kw_image::load(file, &bytes, w, h, &channels) || channels != 3) return false;
  size_t size = (size_t)*w * *h;
  *data = (T*)malloc(sizeof(T) * size * 4);
  for (size_t i = 0; i < size; i++) {
    for (int c = 0; c < 3; c++) (*data)[4 * i + c] = kw_image::from_byte<T>(bytes[3 * i + c]);
    (*data)[4 * i + 3] = 0;
  }
  return true;
}
template <class T>
inline bool sdkSavePGM(const char* file, T* data, unsigned int w, unsigned int h) {
  std::vector<unsigned char> bytes((size_t)w * h);
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = kw_image::to_byte(data[i]);
  return kw_image::save(file, bytes.data(), w, h, 1);
}
inline bool sdkSavePPM4ub(const char* file, unsigned char* data, unsigned int w, unsigned int h) {
  std::vector<unsigned char> bytes;
  for (size_t i = 0; i < (size_t)w * h; i++) bytes.insert(bytes.end(), data + 4 * i, data + 4 * i + 3);
  return kw_image::save(file, bytes.data(), w, h, 3);
}
inline bool sdkLoadPPM4ub(const char* file, unsigned char** data, unsigned int* w, unsigned int* h) {
  return sdkLoadPPM4<unsigned char>(file, data, w, h);
}

template <class T>
inline bool sdkReadFile(const char* filename, T** data, unsigned int* length, bool verbose) {
  std::ifstream file(filename);
  std::vector<T> found;
  for (T value; file >> value;) found.push_back(value);
  if (found.empty()) {
    if (verbose) std::cerr << "sdkReadFile() : Opening file failed." << std::endl;
    return false;
  }
  if (!*data) {
    *data = (T*)malloc(sizeof(T) * found.size());
    *length = (unsigned int)found.size();
  }
  std::copy_n(found.begin(), std::min<size_t>(*length, found.size()), *data);
  return true;
}
template <class T, class S>
inline bool sdkWriteFile(const char* filename, const T* data, unsigned int length, const S epsilon, bool, bool append = false) {
  std::ofstream file(filename, append ? std::ios::out | std::ios::app : std::ios::out);
  file << "# " << epsilon << "\n";
  for (unsigned int i = 0; i < length; i++) file << data[i] << ' ';
  file << std::endl;
  return file.good();
}

// True where at most `threshold` (a share) of the elements differ by more than `epsilon`.
template <class T, class S>
inline bool compareData(const T* reference, const T* data, const unsigned int length, const S epsilon, const float threshold) {
  unsigned int wrong = 0;
  for (unsigned int i = 0; i < length; ++i) {
    float difference = (float)reference[i] - (float)data[i];
    wrong += !(difference <= epsilon && difference >= -epsilon);
  }
  return threshold == 0.0f ? wrong == 0 : (float)length * threshold > wrong;
}
template <class T, class S>
inline bool compareDataAsFloatThreshold(const T* reference, const T* data, const unsigned int length, const S epsilon,
                                        const float threshold) {
  unsigned int wrong = 0;
  for (unsigned int i = 0; i < length; ++i) wrong += fabs((float)reference[i] - (float)data[i]) > MAX((float)epsilon, 0.0005f);
  if (wrong) printf("total # of errors = %u\n", wrong);
  return wrong <= (unsigned int)(threshold * length);
}
inline bool sdkCompareL2fe(const float* reference, const float* data, const unsigned int length, const float epsilon) {
  float error = 0, norm = 0;
  for (unsigned int i = 0; i < length; ++i) {
    error += (reference[i] - data[i]) * (reference[i] - data[i]);
    norm += reference[i] * reference[i];
  }
  if (fabsf(norm) < 1e-7f) return false;
  return sqrtf(error) / sqrtf(norm) < epsilon;
}
inline bool sdkComparePPM(const char* source, const char* reference, const float epsilon, const float threshold, bool) {
  std::vector<unsigned char> a, b;
  unsigned int size[2][3] = {};
  if (!kw_image::load(source, &a, &size[0][0], &size[0][1], &size[0][2])) return false;
  if (!kw_image::load(reference, &b, &size[1][0], &size[1][1], &size[1][2]) || memcmp(size[0], size[1], sizeof size[0])) return false;
  return compareData(b.data(), a.data(), (unsigned int)a.size(), epsilon, threshold);
}
inline bool sdkComparePGM(const char* source, const char* reference, const float epsilon, const float threshold, bool verbose) {
  return sdkComparePPM(source, reference, epsilon, threshold, verbose);
}
