// Python.h as far as an extension needs it to be imported: `PyMODINIT_FUNC PyInit_x() { return PyModule_Create(&def); }`.
// The module has no functions of its own; what it registers through TORCH_LIBRARY is found there.
#pragma once

#include "library.h"

struct _object;
typedef struct _object PyObject;
typedef ssize_t Py_ssize_t;
typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);
struct PyMethodDef {
  const char* ml_name;
  PyCFunction ml_meth;
  int ml_flags;
  const char* ml_doc;
};
struct PyModuleDef_Base {
  PyObject* first;
};
struct PyModuleDef_Slot {
  int slot;
  void* value;
};
struct PyModuleDef {
  PyModuleDef_Base m_base;
  const char* m_name;
  const char* m_doc;
  Py_ssize_t m_size;
  PyMethodDef* m_methods;
  PyModuleDef_Slot* m_slots;
  void* m_traverse;
  void* m_clear;
  void* m_free;
};
#define PyModuleDef_HEAD_INIT \
  { nullptr }
#define PyMODINIT_FUNC extern "C" PyObject*
#define METH_VARARGS 0x0001
#define METH_KEYWORDS 0x0002
#define METH_NOARGS 0x0004
#define METH_O 0x0008
#define PYTHON_API_VERSION 1013
// A module whose methods take Python objects cannot be called from here.
PyObject* kw_python_module(const PyModuleDef& definition);
inline PyObject* PyModule_Create(PyModuleDef* definition) { return kw_python_module(*definition); }
inline PyObject* PyModule_Create2(PyModuleDef* definition, int) { return kw_python_module(*definition); }
inline PyObject* PyModuleDef_Init(PyModuleDef* definition) { return kw_python_module(*definition); }
