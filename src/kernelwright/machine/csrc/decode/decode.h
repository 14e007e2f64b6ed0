// Turns parsed functions into a Kernel: resolves names to slots, inlines calls, picks one C++ function per instruction.
#pragma once
#include <functional>

#include "decode/calls.h"
#include "launch/machine.h"

namespace kw {
enum class Round : u8 { None, Near, Zero, Down, Up, NearAway };

// The dotted parts of an opcode, consumed one after another; whatever stays unconsumed is unsupported.
class Mods {
 public:
  explicit Mods(string_view opcode);
  string_view op;               // first part
  bool take(string_view name);  // consumes it wherever it stands
  string_view next();           // consumes the first unconsumed part ("" at the end)
  string_view peek() const;
  Ty type();        // consumes the first unconsumed type; throws Unsupported
  Ty maybe_type();  // Ty::None when there is none
  Round round();    // .rn .rz .rm .rp
  [[noreturn]] void unsupported(string_view part) const;
  void finish() const;  // throws Unsupported for the first part left over

 private:
  string_view full_;
  string_view part_[24];
  int n_ = 0;
  u32 used_ = 0;
};

struct Symbol {
  Space space = Space::Reg;
  u64 value = 0;         // address or offset
  bool dynamic = false;  // offset is relative to dynamic shared memory
  bool kernel_param = false;
  bool on_stack = false;  // Local, relative to the frame of the function that runs
};

class Decoder;
using Handler = void (*)(Decoder&, Mods&);
using Handlers = std::unordered_map<string_view, Handler>;

class Decoder {
 public:
  Decoder(Program& p, const Handlers& h) : program(p), handlers_(h) {}
  Kernel decode(const Function& entry);

  // The instruction at hand.
  const Operand& op(u32 i) const;
  u32 count() const { return ins_->count; }
  void need(u32 n) const;  // exactly n operands, else PtxError
  void need(u32 lo, u32 hi) const;
  const Operand& element(const Operand& vec, u32 i) const { return fn_->operands[vec.first + i]; }

  // Operands to virtual registers. Widths must match the type exactly, except for the _any forms,
  // where a register may be wider than the type; `bytes` then tells its width.
  u32 src(const Operand& o, Ty t);
  u32 src_any(const Operand& o, Ty t, int& bytes);
  u32 dst(const Operand& o, Ty t);
  u32 dst_any(const Operand& o, Ty t, int& bytes);
  u32 pred_src(const Operand& o);
  u32 pred_dst(const Operand& o);
  u32 constant(u64 bits, int bytes);
  u32 scratch(int bytes);
  u32 param_slot(const FixedSlot& s) { return fixed(s); }
  u32 carry_ext();  // the predicate that holds the carry bits, as an ext index
  u32 true_pred() { return constant(FULL, 0); }
  bool is_sink(const Operand& o) const { return o.kind == Operand::Sink; }
  int width(const Operand& o);      // of a register operand in bytes, -1 when it is none
  i64 immediate(const Operand& o);  // throws PtxError when it is no integer

  // [base + offset]: returns the slot of the base address and its width, sets the offset.
  struct Address {
    u32 base = 0;
    int bytes = 8;
    i64 offset = 0;
    bool dynamic = false;
    Symbol symbol;
    bool has_symbol = false;
  };
  Address address(const Operand& o);
  void set_address(Inst& in, const Operand& o, Space space);

  Inst& emit(Fn fn, Class cls);
  u32 ext(const std::vector<u32>& slots);
  u32 new_site() { return kernel_.sites++; }
  Kernel& kernel() { return kernel_; }
  bool find_symbol(string_view name, Symbol& out);
  string where() const;
  Program& program;
  bool in_entry() const { return depth_ == 0; }
  void call(Mods& m);
  void branch(string_view label);  // `bra`
  void branch_table(string_view targets, u32 index);
  void leave_function();  // `ret`
  void leave_routine();
  void allocate_on_stack(u32 bytes, u32 dest, u32 align);
  u32 stack_top() const { return top_; }
  void exit();
  bool guard_is(u32 p) const { return guard_ == p; }
  bool guarded() const { return !ins_->guard.empty(); }

 private:
  struct Vreg {
    u8 bytes;  // of a lane; 0 for a predicate
    bool fixed;
    FixedSlot slot;
    bool dynamic = false;  // a constant relative to dynamic shared memory
    bool pinned = false;   // keeps its slot for the whole kernel
  };
  struct Name {
    string_view name;
    u32 count = 0;  // registers name0..; 0: exactly this name
    u32 first = 0;
    Ty type = Ty::None;
    Symbol symbol;
  };
  struct Reference {
    u32 vreg;
    bool def;
  };
  struct Fixup {
    u32 inst;
    string_view label;
    i64 table;  // -1, or the table whose entry it is
    u32 entry;
  };
  struct LabelScope {
    std::unordered_map<string_view, u32> labels;
    size_t first_fixup, first_name;
    u64 frame;
  };
  struct Group {
    u32 code_begin, code_end, ref_begin, ref_end;
    bool guarded;
  };
  struct Interval {
    u32 first = ~0u, last = 0;
  };
  enum Flow : u8 { Next, Branch, Jump, Leave };
  void body(const Function& f);
  void instruction(const Instr& in);
  Handler handler(const Mods& m, string_view opcode) const;
  void declare(const Function& f, const Variable& v, u32 index);
  const Name* find(string_view name, u32& vreg);
  u32 new_vreg(int bytes);
  u32 fixed(FixedSlot s, bool dynamic = false);
  u32 special(string_view name, Ty t);
  u32 local(u64 bytes, u32 align);
  void note(u32 vreg, bool def) { refs_.push_back({vreg, def}); }
  void end_of_body();
  void bind_and_inline(const Function& f, const Operand* rets, const Operand* args);
  void builtin_call(string_view name, const Operand* rets, const Operand* args);
  // calls.cpp
  void begin_stack(const Function& entry);
  void real_call(const Function* callee, u32 address, const Signature& s, const Operand* rets, const Operand* args);
  void indirect_call(const Operand& address, const Operand* rets, const Operand* args, const Operand* prototype);
  Symbol frame_symbol(const Operand& o);  // of a .param variable that a call names
  void decode_routines();
  void routine(Routine& r);
  void save_registers(const std::vector<Interval>& intervals, const std::vector<u32>& offset);
  void plain_text(const char* text);  // instructions that no PTX instruction stands for
  void open_scope();
  void close_scope();
  void finish();
  void patch(const std::vector<u32>& offset);
  void add_shared_gap();
  void find_index_arithmetic();  // indices.cpp
  void find_spins();             // order.cpp
  void find_early_reads();  // wgmma_order.cpp
  // registers.cpp
  void allocate_registers();
  struct BasicBlock {
    u32 begin, end;
    std::vector<u32> next;
    std::vector<u64> use, def, in, out;
  };
  std::vector<BasicBlock> basic_blocks() const;
  void solve_liveness(std::vector<BasicBlock>& blocks, const std::vector<int>& shared_index, size_t words) const;
  std::vector<u32> assign_slots(std::vector<Interval>& intervals);

  const Handlers& handlers_;
  const Function* fn_ = nullptr;
  const Instr* ins_ = nullptr;
  Kernel kernel_;
  int depth_ = 0;
  std::vector<const Function*> stack_;
  std::vector<Vreg> vregs_;
  std::map<std::tuple<int, u64, u64>, u32> pool_;
  std::vector<Name> names_;
  std::vector<Reference> refs_;
  std::vector<Group> groups_;            // instructions of one PTX instruction share their references
  std::vector<u8> flow_, guarded_flow_;  // per instruction
  std::vector<Fixup> fixups_;
  std::vector<LabelScope> scopes_;
  std::map<std::pair<const void*, u32>, u64> shared_at_;
  std::vector<u32> dynamic_imm_;  // instructions whose imm needs the dynamic base
  u32 guard_ = 0, guard_flip_ = 0;
  u32 dynamic_align_ = 16;
  u64 frame_ = 0, frame_most_ = 0;
  u32 sp_ = 0, top_ = 0;  // registers with the offset of the frame and of the stack's end, when there are real calls
  int routine_ = -1;      // index of the routine that is decoded now
  std::vector<u32> pending_;  // routines by number, to be decoded
  Instr plain_;
  string_view dynamic_name_;
  u32 carry_ = 0;
};

const Handlers& all_handlers();
void add_int_handlers(Handlers& h);
void add_logic_handlers(Handlers& h);
void add_float_handlers(Handlers& h);
void add_half_handlers(Handlers& h);
void add_cvt_handlers(Handlers& h);
void add_memory_handlers(Handlers& h);
void add_atomic_handlers(Handlers& h);
void add_warp_handlers(Handlers& h);
void add_control_handlers(Handlers& h);
void add_tensor_handlers(Handlers& h);
void add_call_handlers(Handlers& h);
void add_video_handlers(Handlers& h);
void add_texture_handlers(Handlers& h);
void add_async_handlers(Handlers& h);
void add_mbarrier_handlers(Handlers& h);
void add_cluster_handlers(Handlers& h);
}  // namespace kw
