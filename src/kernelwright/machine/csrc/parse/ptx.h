// The parsed form of PTX: output of the parser, input of the decoder. Nothing here is executed.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kw {
using std::string;
using std::string_view;
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;

// Malformed PTX.
struct PtxError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Well-formed PTX that the machine does not know; what() is the feature's name.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The same, but decoding cannot go on.
struct TooLarge : Unsupported {
  using Unsupported::Unsupported;
};

enum class Ty : u8 {
  None,
  U8,
  U16,
  U32,
  U64,
  S8,
  S16,
  S32,
  S64,
  B8,
  B16,
  B32,
  B64,
  B128,
  Pred,
  F16,
  F16X2,
  BF16,
  BF16X2,
  TF32,
  F32,
  F64,
  E4M3X2,
  E5M2X2,
};
int size_of(Ty t);                // bytes; 0 for Pred and None
Ty type_named(string_view name);  // without the dot; None when it is no type
inline bool is_signed(Ty t) { return t >= Ty::S8 && t <= Ty::S64; }
inline bool is_unsigned(Ty t) { return t >= Ty::U8 && t <= Ty::U64; }
inline bool is_bits(Ty t) { return t >= Ty::B8 && t <= Ty::B128; }
inline bool is_int(Ty t) { return is_signed(t) || is_unsigned(t); }

enum class Space : u8 { Generic, Global, Shared, Local, Const, Param, Reg, Cluster };  // Cluster: shared::cluster

struct Operand {
  enum Kind : u8 { Name, Int, Float, Mem, Vec, Pair, Sink, Indexed } kind = Sink;
  bool negated = false;      // !p
  bool minus = false;        // -a, which only vmad has
  bool is_double = false;    // Float written as 0d... or decimal
  string_view name;          // Name, and the base of Mem ("" for an absolute address)
  i64 value = 0;             // Int bits, Float bits, offset of Name and Mem
  // Indexed: like Mem, with what stands behind the comma of [tensorMap, {coordinates}] or [texture, {coordinates}]
  u32 first = 0, count = 0;  // Vec, Pair and Indexed: elements in Function::operands
};

struct Instr {
  string_view opcode;
  string_view guard;  // predicate register or ""
  bool guard_negated = false;
  u32 first = 0, count = 0;  // operands in Function::operands
  u32 loc = 0;               // index into Module::locs
  string_view text;
};

struct Variable {
  Space space = Space::Global;
  Ty type = Ty::B8;
  string_view name;
  u32 align = 1;
  u64 bytes = 0;  // 0: an extern array of unknown length
  u64 elements = 1;
  bool is_array = false, is_extern = false;
  std::vector<u8> init;
  struct Pointer {
    u64 at;
    string_view symbol;
    i64 offset;
    bool generic;
  };
  std::vector<Pointer> pointers;  // addresses inside the initialiser
};

struct RegDecl {
  Ty type;
  string_view name;
  u32 count;  // 0: one register of exactly that name; else name0 .. name<count-1>
};

struct Item {
  enum Kind : u8 { Ins, Label, Open, Close, Regs, Var, Targets } kind;
  u32 index = 0;     // into the vector of that kind
  string_view name;  // Label, Targets
};

struct Function {
  string_view name;
  bool is_entry = false, has_body = false;
  std::vector<Variable> params, returns;
  std::vector<Item> items;
  std::vector<Instr> instrs;
  std::vector<Operand> operands;
  std::vector<RegDecl> regs;
  std::vector<Variable> vars;
  std::vector<std::vector<string_view>> targets;  // .branchtargets lists
  struct Prototype {
    string_view name;
    std::vector<Variable> params, returns;
  };
  std::vector<Prototype> prototypes;  // of calls through pointers
  u32 max_threads = 0;
  u32 cluster[3] = {0, 0, 0};  // .reqnctapercluster
};

struct Loc {
  u32 file = 0, line = 0, column = 0;
  u32 at_file = 0, at_line = 0, at_column = 0;  // inlined_at, 0 when there is none
};

struct Module {
  string source;
  std::vector<Variable> vars;
  std::vector<Function> functions;
  std::unordered_map<string_view, u32> function_index;
  std::vector<Loc> locs{Loc{}};
  std::unordered_map<u32, string> files;
  std::vector<string> unsupported;  // directives nobody knows
};

// Fills `m` from its own `source`. Throws PtxError.
void parse(Module& m);
}  // namespace kw
