// Command-line flags and file names as the samples' helper_string.h offers them. Ours, from the header's interface.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <fstream>
#include <string>

#define STRCASECMP strcasecmp
#define STRNCASECMP strncasecmp
#define STRCPY(sFilePath, nLength, sPath) strcpy(sFilePath, sPath)
#define FOPEN(fHandle, filename, mode) (fHandle = fopen(filename, mode))
#define FOPEN_FAIL(result) (result == NULL)
#define SSCANF sscanf
#define SPRINTF sprintf
#ifndef EXIT_WAIVED
#define EXIT_WAIVED 2
#endif

inline int stringRemoveDelimiter(char delimiter, const char* string) {
  int start = 0;
  while (string[start] == delimiter) start++;
  return start >= (int)strlen(string) - 1 ? 0 : start;
}
inline int getFileExtension(char* filename, char** extension) {
  char* dot = strrchr(filename, '.');
  *extension = dot ? dot + 1 : filename + strlen(filename);
  return (int)(*extension - filename);
}

namespace kw_flags {
// The text behind `name` in --name=value, an empty text for --name, null without that flag.
inline const char* find(int argc, const char** argv, const char* name) {
  for (int i = 1; i < argc; i++) {
    const char* text = argv[i] + stringRemoveDelimiter('-', argv[i]);
    size_t length = strlen(name);
    if (STRNCASECMP(text, name, length)) continue;
    if (text[length] == '=' || text[length] == '\0') return text + length + (text[length] == '=');
  }
  return nullptr;
}
}  // namespace kw_flags

inline bool checkCmdLineFlag(const int argc, const char** argv, const char* name) {
  return kw_flags::find(argc, argv, name) != nullptr;
}
template <class T>
inline bool getCmdLineArgumentValue(const int argc, const char** argv, const char* name, T* value) {
  const char* text = kw_flags::find(argc, argv, name);
  if (text && value) *value = (T)atoi(text);
  return text != nullptr;
}
inline int getCmdLineArgumentInt(const int argc, const char** argv, const char* name) {
  const char* text = kw_flags::find(argc, argv, name);
  return text ? atoi(text) : 0;
}
inline float getCmdLineArgumentFloat(const int argc, const char** argv, const char* name) {
  const char* text = kw_flags::find(argc, argv, name);
  return text ? (float)atof(text) : 0.0f;
}
inline bool getCmdLineArgumentString(const int argc, const char** argv, const char* name, char** value) {
  const char* text = kw_flags::find(argc, argv, name);
  *value = text ? const_cast<char*>(text) : nullptr;
  return text != nullptr;
}
// A copy of the path of `filename`, in the current folder or in its data folder; null where it is in neither.
inline char* sdkFindFilePath(const char* filename, const char* = nullptr) {
  for (const char* folder : {"./", "./data/", "../data/", "./common/data/", "../../../Common/data/"}) {
    std::string path = std::string(folder) + filename;
    if (std::ifstream(path).good()) return strdup(path.c_str());
  }
  return std::ifstream(filename).good() ? strdup(filename) : nullptr;
}
