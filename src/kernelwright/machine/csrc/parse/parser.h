// Recursive-descent parser of PTX: text to `Module`. Knows the grammar, not the meaning of opcodes.
#pragma once
#include "parse/lexer.h"

namespace kw {
class Parser {
 public:
  explicit Parser(Module& m) : m_(m), lx_(m.source) {}
  void run();

 private:
  void statement();
  void file_directive();
  void loc_directive();
  void skip_section();
  void function(bool is_entry);
  void performance_directives(Function& f);
  void body(Function& f);
  bool body_directive(Function& f);
  void instruction(Function& f);
  void registers(Function& f);
  void prototype(Function& f, string_view name);
  std::vector<Variable> parameters();
  Variable variable(Space space, bool is_extern, bool one_only);
  Variable declarator(Variable base);
  void initialiser(Variable& v);
  void init_value(Variable& v, u64& at);
  Operand operand(Function& f);
  Operand simple_operand(Function& f);
  Operand memory(Function& f);
  Operand list(Function& f, char close);
  i64 integer();
  void number(string_view text, Operand& out) const;
  u32 small(const char* what);

  Module& m_;
  Lexer lx_;
  bool negatable_ = false;  // the instruction takes operands with a minus
  u32 loc_ = 0;
};
}  // namespace kw
