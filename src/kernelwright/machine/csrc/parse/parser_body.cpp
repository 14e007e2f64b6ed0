// The second half of the parser: function bodies, instructions and operands.
#include <charconv>
#include <cstring>

#include "parse/parser.h"

namespace kw {
void Parser::body(Function& f) {
  lx_.expect('{');
  int depth = 1;
  while (depth > 0) {
    const Token& t = lx_.peek();
    if (t.kind == Token::End) lx_.fail("unclosed function body");
    if (t.is('{')) {
      lx_.next();
      if (++depth > 200) lx_.fail("scopes nested too deeply");
      f.items.push_back({Item::Open, 0, {}});
    } else if (t.is('}')) {
      lx_.next();
      if (--depth > 0) f.items.push_back({Item::Close, 0, {}});
    } else if (t.is(';')) {
      lx_.next();
    } else if (t.kind == Token::Directive) {
      if (!body_directive(f)) lx_.fail("unknown directive");
    } else {
      instruction(f);
    }
  }
}

bool Parser::body_directive(Function& f) {
  string_view d = lx_.peek().text;
  if (d == ".loc") return lx_.next(), loc_directive(), true;
  if (d == ".reg") return lx_.next(), registers(f), true;
  bool is_extern = d == ".extern";
  if (is_extern) lx_.next(), d = lx_.peek().text;
  if (d == ".pragma") {
    lx_.next();
    while (lx_.peek().kind == Token::String) lx_.next(), lx_.accept(',');
    lx_.expect(';');
    return true;
  }
  Space s = d == ".local"    ? Space::Local
            : d == ".shared" ? Space::Shared
            : d == ".param"  ? Space::Param
            : d == ".global" ? Space::Global
            : d == ".const"  ? Space::Const
                             : Space::Generic;
  if (s == Space::Generic) throw Unsupported(string(d.empty() ? d : d.substr(1)));
  lx_.next();
  Variable v = variable(s, is_extern, true);
  for (;;) {
    f.items.push_back({Item::Var, (u32)f.vars.size(), {}});
    f.vars.push_back(v);
    if (!lx_.accept(',')) break;
    v.init.clear();
    v.pointers.clear();
    v.is_array = false;
    v = declarator(v);
  }
  lx_.expect(';');
  return true;
}

void Parser::registers(Function& f) {
  if (lx_.peek().kind != Token::Directive) lx_.fail("expected a register type");
  string_view d = lx_.next().text;
  Ty t = type_named(d.substr(1));
  if (t == Ty::None) throw Unsupported("reg" + string(d));
  do {
    if (lx_.peek().kind != Token::Word) lx_.fail("expected a register name");
    RegDecl r{t, lx_.next().text, 0};
    if (lx_.accept('<')) {
      r.count = small("register count");
      if (r.count > 1000000) lx_.fail("too many registers");
      lx_.expect('>');
      if (r.count == 0) continue;
    }
    f.items.push_back({Item::Regs, (u32)f.regs.size(), {}});
    f.regs.push_back(r);
  } while (lx_.accept(','));
  lx_.expect(';');
}

void Parser::instruction(Function& f) {
  size_t begin = lx_.start();
  Instr in;
  in.loc = loc_;
  if (lx_.accept('@')) {
    in.guard_negated = lx_.accept('!');
    in.guard = lx_.next().text;
  }
  if (lx_.peek().kind != Token::Word) lx_.fail("expected an instruction");
  in.opcode = lx_.next().text;
  if (in.guard.empty() && lx_.peek().is(':')) {
    lx_.next();
    if (lx_.peek().text == ".branchtargets" || lx_.peek().text == ".calltargets") {
      lx_.next();
      std::vector<string_view> names;
      do names.push_back(lx_.next().text);
      while (lx_.accept(','));
      lx_.expect(';');
      f.items.push_back({Item::Targets, (u32)f.targets.size(), in.opcode});
      f.targets.push_back(std::move(names));
      return;
    }
    if (lx_.peek().text == ".callprototype") return prototype(f, in.opcode);
    f.items.push_back({Item::Label, 0, in.opcode});
    return;
  }
  std::vector<Operand> ops;
  negatable_ = in.opcode.starts_with("vmad.");
  if (!lx_.peek().is(';')) {
    do ops.push_back(operand(f));
    while (lx_.accept(','));
  }
  in.first = (u32)f.operands.size();
  in.count = (u32)ops.size();
  f.operands.insert(f.operands.end(), ops.begin(), ops.end());
  in.text = string_view(m_.source).substr(begin, lx_.start() - begin);
  lx_.expect(';');
  f.items.push_back({Item::Ins, (u32)f.instrs.size(), {}});
  f.instrs.push_back(in);
}

// name: .callprototype (results) _ (parameters);
void Parser::prototype(Function& f, string_view name) {
  lx_.next();
  Function::Prototype p;
  p.name = name;
  if (lx_.peek().is('(')) p.returns = parameters();
  if (lx_.next().text != "_") lx_.fail("expected '_'");
  if (lx_.peek().is('(')) p.params = parameters();
  while (lx_.peek().kind == Token::Directive) {
    string_view d = lx_.next().text;
    if (d == ".abi_preserve" || d == ".abi_preserve_control")
      small("count");
    else if (d != ".noreturn")
      throw Unsupported("callprototype" + string(d));
  }
  lx_.expect(';');
  f.prototypes.push_back(std::move(p));
}

Operand Parser::operand(Function& f) {
  Operand a = simple_operand(f);
  if (!lx_.accept('|')) return a;
  Operand b = simple_operand(f);
  Operand pair;
  pair.kind = Operand::Pair;
  pair.first = (u32)f.operands.size();
  pair.count = 2;
  f.operands.push_back(a);
  f.operands.push_back(b);
  return pair;
}

Operand Parser::simple_operand(Function& f) {
  Operand o;
  if (lx_.accept('{')) return list(f, '}');
  if (lx_.accept('(')) return list(f, ')');
  if (lx_.accept('[')) return memory(f);
  if (lx_.accept('!')) o.negated = true;
  bool minus = !o.negated && lx_.accept('-');
  const Token t = lx_.peek();
  if (t.kind == Token::Number) {
    lx_.next();
    number(t.text, o);
    if (minus) o.value = o.kind == Operand::Float ? o.value ^ (i64)(1ull << 63) : (i64)(0 - (u64)o.value);
    return o;
  }
  if (t.kind != Token::Word || (minus && !negatable_)) lx_.fail("expected an operand");
  lx_.next();
  o.minus = minus;
  if (t.text == "_") return o;
  o.kind = Operand::Name;
  o.name = t.text;
  if (lx_.peek().is('+')) lx_.next(), o.value = integer();
  return o;
}

Operand Parser::list(Function& f, char close) {
  static thread_local int depth = 0;
  struct Depth {
    Depth() { depth++; }
    ~Depth() { depth--; }
  } guard;
  if (depth > 50) lx_.fail("operands nested too deeply");
  std::vector<Operand> ops;
  while (!lx_.peek().is(close)) {
    ops.push_back(operand(f));
    if (!lx_.accept(',')) break;
  }
  lx_.expect(close);
  Operand o;
  o.kind = Operand::Vec;
  o.first = (u32)f.operands.size();
  o.count = (u32)ops.size();
  f.operands.insert(f.operands.end(), ops.begin(), ops.end());
  return o;
}

Operand Parser::memory(Function& f) {
  Operand o;
  o.kind = Operand::Mem;
  if (lx_.peek().kind == Token::Word) {
    o.name = lx_.next().text;
    while (lx_.peek().is('+') || lx_.peek().is('-')) {
      bool minus = lx_.next().is('-');
      u64 v = (u64)integer();
      o.value += (i64)(minus ? 0 - v : v);
    }
  } else {
    o.value = integer();
  }
  if (lx_.accept(',')) {  // [tensorMap, {coordinates}], [texture, {coordinates}]
    Operand rest = list(f, ']');
    o.kind = Operand::Indexed;
    o.first = rest.first;
    o.count = rest.count;
    return o;
  }
  lx_.expect(']');
  return o;
}

void Parser::number(string_view s, Operand& o) const {
  const char *b = s.data(), *e = b + s.size();
  auto parse_int = [&](const char* from, int base) {
    u64 v = 0;
    if (e > from && (e[-1] == 'U' || e[-1] == 'u') && base != 16) e--;
    if (e > from && base == 16 && (e[-1] == 'U' || e[-1] == 'u')) e--;
    auto r = std::from_chars(from, e, v, base);
    if (r.ec != std::errc() || r.ptr != e || from == e) lx_.fail("bad number '" + string(s) + "'");
    o.value = (i64)v;
  };
  o.kind = Operand::Int;
  char second = s.size() > 1 ? (char)(s[1] | 0x20) : '\0';
  if (s[0] == '0' && (second == 'f' || second == 'd')) {
    size_t digits = second == 'f' ? 8 : 16;
    if (s.size() != digits + 2) lx_.fail("bad float '" + string(s) + "'");
    parse_int(b + 2, 16);
    double d;
    if (second == 'f') {
      float x;
      u32 bits = (u32)o.value;
      std::memcpy(&x, &bits, 4);
      d = x;
      std::memcpy(&o.value, &d, 8);
      o.count = bits;  // the exact single-precision bits, so that NaN payloads survive
    }
    o.kind = Operand::Float;
    o.is_double = second == 'd';
  } else if (s[0] == '0' && second == 'x') {
    parse_int(b + 2, 16);
  } else if (s[0] == '0' && second == 'b') {
    parse_int(b + 2, 2);
  } else if (s.find_first_of(".eE") != string_view::npos) {
    double d = 0;
    auto r = std::from_chars(b, e, d);
    if (r.ec != std::errc() || r.ptr != e) lx_.fail("bad float '" + string(s) + "'");
    std::memcpy(&o.value, &d, 8);
    o.kind = Operand::Float;
    o.is_double = true;
  } else if (s[0] == '0' && s.size() > 1) {
    parse_int(b + 1, 8);
  } else {
    parse_int(b, 10);
  }
}
}  // namespace kw
