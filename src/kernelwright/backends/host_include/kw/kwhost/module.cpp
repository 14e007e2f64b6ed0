// The table of bound functions of one extension, and the C entry points by which the runner calls them.
#include <cxxabi.h>

#include "impl.h"

template class std::vector<int64_t>;
template class std::vector<at::Tensor>;

const char* c10::toString(c10::DispatchKey key) {
  static const char* const names[] = {"CPU", "CUDA", "Meta", "Autograd", "AutogradCPU", "AutogradCUDA",
                                      "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CatchAll"};
  return names[static_cast<int>(key)];
}

namespace kw {

struct Named {
  std::string name;
  Value fallback;
  bool has_fallback;
};
struct Function {
  int module;
  std::string name;
  std::string doc;
  std::vector<Named> parameters;
  int arity;
  Invoker invoker;
  void* function;
};
struct Result {
  Value value;
  std::vector<Value> values;
  std::vector<std::unique_ptr<Result>> children;
  std::vector<at::Tensor> tensors;
  std::string text;
};

// Host code read or wrote memory of the device.
struct DeviceMemoryTouched {
  uintptr_t address;
};
static uintptr_t touched_address = 0;
static std::vector<Function> functions;
static int current_module = 0;
static Result result;
static int error_kind = 0;  // 1 argument mismatch, 2 C++ exception, 3 the exception that Python raised, 4 device memory touched

// Later definitions of a name are overloads: all are kept, the first that accepts the arguments is called.
void register_function(const char* name, const char* doc, const Parameter* parameters, int parameter_count, int arity,
                       Invoker invoker, void* function) {
  Function f{current_module, name, doc, {}, arity, invoker, function};
  for (int k = 0; k < parameter_count; ++k)
    f.parameters.push_back({parameters[k].name, parameters[k].fallback, parameters[k].has_fallback});
  functions.push_back(std::move(f));
}
struct Attribute {
  int module;
  std::string name;
  Value value;
};
static std::vector<Attribute> attributes;
void register_attribute(const char* name, const Arg& value) { attributes.push_back({current_module, name, keep(value.value)}); }

// What TORCH_LIBRARY blocks say: they are noted while the library is loaded, and run when the runner asks.
struct Block {
  void (*fill)(torch::Library&);
  const char* space;
  const char* key;
};
struct Operator {
  std::string space, schema, key;
  int function;
  bool defines;
};
static std::vector<Block>& library_blocks() {
  static std::vector<Block> all;
  return all;
}
static std::vector<Operator> operators;
LibraryBlock::LibraryBlock(void (*fill)(torch::Library&), const char* space, const char* key) {
  library_blocks().push_back({fill, space, key});
}
// The unqualified name with its overload: `add.out` of "mine::add.out(Tensor a) -> Tensor".
std::string operator_key(const std::string& space, const std::string& schema, const char* key) {
  std::string name = schema.substr(0, schema.find('('));
  if (name.rfind(space + "::", 0) == 0) name = name.substr(space.size() + 2);
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return space + "::" + name + " (" + key + ")";
}
void register_operator(const std::string& space, const std::string& schema, const char* key, const std::string& function,
                       bool defines) {
  std::string own = schema.rfind(space + "::", 0) == 0 ? schema.substr(space.size() + 2) : schema;
  operators.push_back({space, own, key, function.empty() ? -1 : static_cast<int>(functions.size()) - 1, defines});
}

// Default values live as long as the process, so their texts and lists are copied once and never freed.
Value keep(const Value& v) {
  Value out = v;
  if (v.tag == STR) out.p = (new std::string(static_cast<const char*>(v.p), v.i))->data();
  if (v.tag == INTS) {
    auto from = static_cast<const int64_t*>(v.p);
    out.p = (new std::vector<int64_t>(from, from + v.i))->data();
  }
  if (v.tag == TENSOR || v.tag == RAW_TENSORS) fail("a tensor cannot be a default argument here");
  return out;
}
Value kept(const std::function<void(Result&)>& fill) {
  auto made = new Result;
  fill(*made);
  return made->value;
}
}  // namespace kw
PyObject* kw_python_module(const PyModuleDef& definition) {
  if (definition.m_methods && definition.m_methods->ml_name) kw::fail_unsupported("PyMethodDef: methods of a CPython module");
  if (definition.m_slots && definition.m_slots->slot) kw::fail_unsupported("PyModuleDef_Slot: slots of a CPython module");
  static char made;
  return reinterpret_cast<PyObject*>(&made);
}
namespace kw {
void bad_argument(int index, const char* wanted) {
  throw BadArgument("argument " + std::to_string(index + 1) + " must be " + wanted);
}

at::Tensor From<at::Tensor>::get(const Value& v, int k) {
  if (v.tag != TENSOR) bad_argument(k, "a torch.Tensor");
  callbacks.retain(v.i);
  return to_tensor(v);
}
bool From<bool>::get(const Value& v, int k) {
  if (v.tag == DOUBLE) return v.d != 0;
  if (v.tag != BOOL && v.tag != INT) bad_argument(k, "a bool");
  return v.i != 0;
}
double From<double>::get(const Value& v, int k) {
  if (v.tag == DOUBLE) return v.d;
  if (v.tag == TENSOR) return From<at::Tensor>::get(v, k).item().toDouble();
  if (v.tag != INT && v.tag != BOOL) bad_argument(k, "a float");
  return static_cast<double>(v.i);
}
std::string From<std::string>::get(const Value& v, int k) {
  if (v.tag != STR) bad_argument(k, "a str");
  return std::string(static_cast<const char*>(v.p), v.i);
}
std::string_view From<std::string_view>::get(const Value& v, int k) {
  if (v.tag != STR) bad_argument(k, "a str");
  return std::string_view(static_cast<const char*>(v.p), v.i);
}
c10::ScalarType From<c10::ScalarType>::get(const Value& v, int k) {
  if (v.tag != DTYPE) bad_argument(k, "a torch.dtype");
  return static_cast<c10::ScalarType>(v.i);
}
c10::Device From<c10::Device>::get(const Value& v, int k) {
  if (v.tag != DEVICE) bad_argument(k, "a torch.device");
  return c10::Device(v.i ? c10::kCUDA : c10::kCPU, static_cast<c10::DeviceIndex>(v.aux));
}
c10::Scalar From<c10::Scalar>::get(const Value& v, int k) {
  if (v.tag != INT && v.tag != DOUBLE && v.tag != BOOL) bad_argument(k, "a number");
  return c10::Scalar(v);
}
int64_t integer_from(const Value& v, int k, int64_t lowest, uint64_t highest) {
  if (v.tag == TENSOR && static_cast<const Meta*>(v.p)->numel == 1) {
    at::Scalar item = From<at::Tensor>::get(v, k).item();
    if (!item.isFloatingPoint()) return item.toLong();
  }
  if (v.tag != INT && v.tag != BOOL) bad_argument(k, "an int");
  if (v.i < lowest || (v.i > 0 && static_cast<uint64_t>(v.i) > highest)) bad_argument(k, "an int that fits the C++ type");
  return v.i;
}
const Value* list_from(const Value& v, int k, int64_t* count, std::vector<Value>& room) {
  *count = v.i;
  if (v.tag == LIST || v.tag == TUPLE) return static_cast<const Value*>(v.p);
  if (v.tag == INTS) {  // a default value
    for (int64_t n = 0; n < v.i; ++n) room.push_back(Value{INT, 0, static_cast<const int64_t*>(v.p)[n]});
    return room.data();
  }
  bad_argument(k, "a list");
}

void give(Result& r, const at::Tensor& v) {
  r.tensors.push_back(v);
  r.value = Arg(v).value;
}
void give(Result& r, bool v) { r.value = Value{BOOL, 0, v}; }
void give(Result& r, double v) { r.value = Value{DOUBLE, 0, 0, v}; }
void give(Result& r, const std::string& v) {
  r.text = v;
  r.value = Value{STR, 0, static_cast<int64_t>(r.text.size()), 0, r.text.data()};
}
void give(Result& r, const char* v) { give(r, std::string(v)); }
void give(Result& r, const c10::Scalar& v) { r.value = v.value(); }
void give(Result& r, c10::ScalarType v) { r.value = Value{DTYPE, 0, static_cast<int64_t>(v)}; }
// What Python passed, handed back as it came.
void give_value(Result& r, const Value& v) {
  if (v.tag == TENSOR) return give(r, From<at::Tensor>::get(v, 0));
  if (v.tag == STR) return give(r, std::string(static_cast<const char*>(v.p), v.i));
  if (v.tag == LIST || v.tag == TUPLE) {
    for (int64_t n = 0; n < v.i; ++n) give_value(give_item(r), static_cast<const Value*>(v.p)[n]);
    return give_list(r, v.tag == TUPLE);
  }
  r.value = v.tag == ABSENT ? Value{NONE} : v;
}
void give_none(Result& r) { r.value = Value{NONE}; }
void give_integer(Result& r, int64_t v) { r.value = Value{INT, 0, v}; }
void give(Result& r, const std::vector<at::Tensor>& v) {
  for (const auto& item : v) give(give_item(r), item);
  give_list(r, false);
}
Result& give_item(Result& r) {
  r.children.push_back(std::make_unique<Result>());
  return *r.children.back();
}
void give_list(Result& r, bool tuple) {
  for (auto& child : r.children) r.values.push_back(child->value);
  r.value = Value{tuple ? TUPLE : LIST, 0, static_cast<int64_t>(r.values.size()), 0, r.values.data()};
}

void give_dict(Result& r) {
  give_list(r, false);
  r.value.tag = DICT;
}

// Positional and named arguments in the order of the C++ parameters, defaults filled in.
static std::vector<Value> arrange(const Function& f, const Call& call) {
  std::vector<Value> out(f.arity);
  std::vector<bool> given(f.arity, false);
  int position = 0;
  for (int k = 0; k < call.count; ++k) {
    int slot = -1;
    if (!call.names[k]) slot = position++;
    else
      for (size_t p = 0; p < f.parameters.size(); ++p)
        if (f.parameters[p].name == call.names[k]) slot = static_cast<int>(p);
    if (slot < 0 || slot >= f.arity || given[slot])
      throw BadArgument(call.names[k] ? std::string("unexpected argument ") + call.names[k] : "too many arguments");
    out[slot] = call.args[k];
    given[slot] = true;
  }
  for (int slot = 0; slot < f.arity; ++slot) {
    if (given[slot]) continue;
    if (slot < int(f.parameters.size()) && f.parameters[slot].has_fallback) out[slot] = f.parameters[slot].fallback;
    else throw BadArgument("argument " + std::to_string(slot + 1) + " is missing");
  }
  return out;
}

static bool try_call(const Function& f, const Call& call, std::string& mismatch) {
  try {
    result = Result();
    std::vector<Value> args = arrange(f, call);
    uintptr_t touched = guarded([&] { f.invoker(f.function, args.data(), result); });
    if (touched) {
      forget_launch();
      throw DeviceMemoryTouched{touched};
    }
    return true;
  } catch (const BadArgument& e) {
    mismatch = e.what();
    return false;
  }
}

}  // namespace kw

extern "C" {

int kw_function_count() { return static_cast<int>(kw::functions.size()); }
const char* kw_function_name(int index) { return kw::functions[index].name.c_str(); }
const char* kw_function_doc(int index) { return kw::functions[index].doc.c_str(); }
uint64_t kw_touched_address() { return kw::touched_address; }
int kw_error_kind() { return kw::error_kind; }
const char* kw_error_text() { return kw::error_text().c_str(); }
void kw_set_error(const char* text);
// Static tensors of candidates die after Python: from here on nobody is told.
void kw_shut_down() {
  kw::callbacks.retain = [](int64_t) {};
  kw::callbacks.release = [](int64_t) {};
}
// The attributes of the module that was begun last, one after the other; null after the last.
const kw::Value* kw_attribute(int index, const char** name) {
  for (auto& one : kw::attributes)
    if (one.module == kw::current_module && index-- == 0) {
      *name = one.name.c_str();
      return &one.value;
    }
  return nullptr;
}
void kw_begin_module() { ++kw::current_module; }
// Runs the blocks that came with the libraries loaded last; 1 after an error.
int kw_run_libraries() {
  std::vector<kw::Block> waiting;
  waiting.swap(kw::library_blocks());
  kw::operators.clear();
  try {
    for (auto& block : waiting) {
      torch::Library library(block.space, block.key);
      block.fill(library);
    }
    return 0;
  } catch (const std::exception& e) {
    kw_set_error(e.what());
    return 1;
  }
}
// The function of operator `index`, -1 where it is only defined, -2 after the last.
int kw_operator(int index, const char** space, const char** schema, const char** key, int* defines) {
  if (index < 0 || index >= static_cast<int>(kw::operators.size())) return -2;
  const kw::Operator& one = kw::operators[index];
  *space = one.space.c_str(), *schema = one.schema.c_str(), *key = one.key.c_str(), *defines = one.defines;
  return one.function;
}
void kw_forget_result() { kw::result = kw::Result(); }
const char* kw_demangle(const char* name) {
  static std::string text;
  int status = 0;
  char* plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  text = plain ? plain : name;
  std::free(plain);
  return text.c_str();
}

// Calls the first overload of function `index`'s name that takes the arguments; null on error.
const kw::Value* kw_call(int index, const kw::Value* args, const char* const* names, int count) {
  kw::Call call{args, names, count};
  std::string mismatch;
  kw::error_kind = 0;
  try {
    const kw::Function& wanted = kw::functions[index];
    for (const kw::Function& f : kw::functions)
      if (f.module == wanted.module && f.name == wanted.name && kw::try_call(f, call, mismatch)) return &kw::result.value;
    kw::error_kind = 1;
    kw_set_error((kw::functions[index].name + "(): incompatible function arguments: " + mismatch).c_str());
  } catch (const kw::DeviceMemoryTouched& e) {
    kw::error_kind = 4;
    kw::touched_address = e.address;
    kw_set_error("Segmentation fault: host code dereferenced a pointer to device memory");
  } catch (const kw::PythonError&) {
    kw::error_kind = 3;
  } catch (const c10::AcceleratorError& e) {
    kw::error_kind = 5;
    kw_set_error(e.what());
  } catch (const std::exception& e) {
    kw::error_kind = 2;
    kw_set_error(e.what());
  } catch (...) {
    kw::error_kind = 2;
    kw_set_error("an unknown C++ exception was thrown");
  }
  return nullptr;
}
}
