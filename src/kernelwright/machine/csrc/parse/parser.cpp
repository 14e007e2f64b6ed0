#include "parse/parser.h"

#include <charconv>
#include <cstring>

namespace kw {
int size_of(Ty t) {
  switch (t) {
    case Ty::U8:
    case Ty::S8:
    case Ty::B8:
      return 1;
    case Ty::U16:
    case Ty::S16:
    case Ty::B16:
    case Ty::F16:
    case Ty::BF16:
    case Ty::E4M3X2:
    case Ty::E5M2X2:
      return 2;
    case Ty::U32:
    case Ty::S32:
    case Ty::B32:
    case Ty::F32:
    case Ty::F16X2:
    case Ty::BF16X2:
    case Ty::TF32:
      return 4;
    case Ty::U64:
    case Ty::S64:
    case Ty::B64:
    case Ty::F64:
      return 8;
    case Ty::B128:
      return 16;
    default:
      return 0;
  }
}

Ty type_named(string_view n) {
  static const std::unordered_map<string_view, Ty> names = {
      {"u8", Ty::U8},       {"u16", Ty::U16},       {"u32", Ty::U32},       {"u64", Ty::U64},   {"s8", Ty::S8},
      {"s16", Ty::S16},     {"s32", Ty::S32},       {"s64", Ty::S64},       {"b8", Ty::B8},     {"b16", Ty::B16},
      {"b32", Ty::B32},     {"b64", Ty::B64},       {"b128", Ty::B128},     {"pred", Ty::Pred}, {"f16", Ty::F16},
      {"f16x2", Ty::F16X2}, {"bf16", Ty::BF16},     {"bf16x2", Ty::BF16X2}, {"tf32", Ty::TF32}, {"f32", Ty::F32},
      {"f64", Ty::F64},     {"e4m3x2", Ty::E4M3X2}, {"e5m2x2", Ty::E5M2X2}};
  auto it = names.find(n);
  return it == names.end() ? Ty::None : it->second;
}

void parse(Module& m) { Parser(m).run(); }

void Parser::run() {
  bool version = false;
  while (lx_.peek().kind != Token::End) {
    version |= lx_.peek().text == ".version";
    statement();
  }
  if (!version) throw PtxError("no .version directive: this is not PTX");
}

void Parser::statement() {
  bool is_extern = false;
  for (;;) {
    string_view d = lx_.peek().text;
    if (d == ".visible" || d == ".weak" || d == ".common")
      lx_.next();
    else if (d == ".extern")
      is_extern = true, lx_.next();
    else
      break;
  }
  if (lx_.peek().kind != Token::Directive) lx_.fail("expected a directive");
  Token t = lx_.next();
  string_view d = t.text;
  if (d == ".version") {
    if (lx_.peek().kind != Token::Number) lx_.fail("expected a version");
    lx_.next();
  } else if (d == ".target") {
    do {
      string_view target = lx_.next().text;
      if (target == "map_f64_to_f32" || target == "texmode_independent") throw Unsupported("target " + string(target));
    } while (lx_.accept(','));
  } else if (d == ".address_size") {
    if (lx_.peek().text != "64") throw Unsupported("address_size." + string(lx_.peek().text));
    lx_.next();
  } else if (d == ".file") {
    file_directive();
  } else if (d == ".loc") {
    loc_directive();
  } else if (d == ".section") {
    skip_section();
  } else if (d == ".pragma") {
    while (lx_.peek().kind == Token::String) lx_.next(), lx_.accept(',');
    lx_.expect(';');
  } else if (d == ".func" || d == ".entry") {
    function(d == ".entry");
  } else if (d == ".global" || d == ".const" || d == ".shared") {
    Space s = d == ".global" ? Space::Global : d == ".const" ? Space::Const : Space::Shared;
    m_.vars.push_back(variable(s, is_extern, false));
    lx_.expect(';');
  } else {
    throw Unsupported(string(d.substr(1)));
  }
}

i64 Parser::integer() {
  bool minus = lx_.accept('-');
  if (lx_.peek().kind != Token::Number) lx_.fail("expected an integer");
  Operand o;
  number(lx_.peek().text, o);
  if (o.kind != Operand::Int) lx_.fail("expected an integer");
  lx_.next();
  return minus ? (i64)(0 - (u64)o.value) : o.value;
}

u32 Parser::small(const char* what) {
  i64 v = integer();
  if (v < 0 || v > 0x7fffffff) lx_.fail(string("bad ") + what);
  return (u32)v;
}

void Parser::file_directive() {
  u32 index = small("file index");
  if (lx_.peek().kind != Token::String) lx_.fail("expected a file name");
  string_view s = lx_.next().text;
  m_.files[index] = string(s.substr(1, s.size() >= 2 ? s.size() - 2 : 0));
  while (lx_.accept(',')) integer();
}

void Parser::loc_directive() {
  Loc l;
  l.file = small("file index");
  l.line = small("line");
  l.column = small("column");
  while (!lx_.at_line_end() && lx_.accept(',')) {
    string_view word = lx_.next().text;
    if (word == "inlined_at") {
      l.at_file = small("file index");
      l.at_line = small("line");
      l.at_column = small("column");
    } else if (word == "function_name") {
      lx_.next();
      if (lx_.accept('+')) integer();
    } else {
      lx_.fail("unknown attribute of .loc");
    }
  }
  if (l.line == 0 && loc_) {  // "line 0" marks compiler-made code: keep the last real line
    return;
  }
  m_.locs.push_back(l);
  loc_ = (u32)m_.locs.size() - 1;
}

void Parser::skip_section() {
  lx_.next();
  lx_.expect('{');
  for (int depth = 1; depth > 0; lx_.next()) {
    if (lx_.peek().kind == Token::End) lx_.fail("unclosed .section");
    depth += lx_.peek().is('{') ? 1 : lx_.peek().is('}') ? -1 : 0;
  }
}

Variable Parser::declarator(Variable v) {
  if (lx_.peek().kind != Token::Word) lx_.fail("expected a variable name");
  v.name = lx_.next().text;
  v.elements = 1;
  while (lx_.accept('[')) {
    v.is_array = true;
    u64 n = lx_.peek().is(']') ? 0 : (u64)integer();
    if (n > (1ull << 32) || v.elements * n > (1ull << 32)) lx_.fail("array too large");
    v.elements *= n;
    lx_.expect(']');
  }
  v.bytes = v.elements * (u64)size_of(v.type);
  if (lx_.accept('=')) initialiser(v);
  return v;
}

Variable Parser::variable(Space space, bool is_extern, bool one_only) {
  Variable v;
  v.space = space;
  v.is_extern = is_extern;
  bool typed = false;
  u32 align = 0;
  while (lx_.peek().kind == Token::Directive) {
    string_view d = lx_.next().text;
    if (d == ".align") {
      align = small("alignment");
      if (align == 0 || align > 4096 || (align & (align - 1))) lx_.fail("bad alignment");
    } else if (d == ".ptr") {  // a hint on kernel parameters: .ptr .global .align 16
      while (lx_.peek().text == ".global" || lx_.peek().text == ".shared" || lx_.peek().text == ".const" ||
             lx_.peek().text == ".local")
        lx_.next();
      if (lx_.peek().text == ".align") lx_.next(), small("alignment");
    } else if (d == ".attribute") {
      throw Unsupported("attribute");
    } else if (Ty t = type_named(d.substr(1)); t != Ty::None && t != Ty::Pred) {
      v.type = t;
      typed = true;
    } else {
      throw Unsupported("variable" + string(d));
    }
  }
  if (!typed) lx_.fail("expected a type");
  v.align = align ? align : (u32)size_of(v.type);
  v = declarator(v);
  if (!one_only && lx_.peek().is(',')) throw Unsupported("several variables in one declaration");
  return v;
}

void Parser::initialiser(Variable& v) {
  u64 at = 0;
  init_value(v, at);
  if (v.is_array && v.elements == 0) {
    v.bytes = v.init.size();
    v.elements = v.bytes / (u64)size_of(v.type);
  }
  if (v.init.size() > v.bytes) lx_.fail("initialiser larger than the variable");
}

void Parser::init_value(Variable& v, u64& at) {
  u64 step = (u64)size_of(v.type);
  if (lx_.accept('{')) {
    while (!lx_.peek().is('}')) {
      init_value(v, at);
      if (!lx_.accept(',')) break;
    }
    lx_.expect('}');
    return;
  }
  if (v.bytes && at + step > v.bytes) lx_.fail("initialiser larger than the variable");
  if (at > (1ull << 32)) lx_.fail("initialiser too large");
  u64 bits = 0;
  if (lx_.peek().kind == Token::Word) {
    if (step != 8) throw Unsupported("address in an initialiser of another size than 8 bytes");
    bool generic = lx_.peek().text == "generic";
    string_view name = lx_.next().text;
    if (generic) {
      lx_.expect('(');
      name = lx_.next().text;
      lx_.expect(')');
    }
    i64 off = lx_.accept('+') ? integer() : 0;
    v.pointers.push_back({at, name, off, generic});
  } else {
    bool minus = lx_.accept('-');
    Operand o;
    if (lx_.peek().kind != Token::Number) lx_.fail("expected a number");
    number(lx_.next().text, o);
    bits = minus ? 0 - (u64)o.value : (u64)o.value;
    if (o.kind != Operand::Int && step == 4) {
      // A float literal is kept as a double: the variable holds its 32 bits.
      double wide;
      std::memcpy(&wide, &o.value, 8);
      float narrow = minus ? -(float)wide : (float)wide;
      u32 word;
      std::memcpy(&word, &narrow, 4);
      bits = word;
    }
    if (lx_.peek().is('(')) throw Unsupported("masked address in an initialiser");
  }
  v.init.resize(at + step);
  std::memcpy(v.init.data() + at, &bits, step > 8 ? 8 : step);
  at += step;
}

std::vector<Variable> Parser::parameters() {
  std::vector<Variable> out;
  lx_.expect('(');
  while (!lx_.peek().is(')')) {
    if (lx_.peek().text == ".reg") throw Unsupported("register parameters of functions");
    if (lx_.next().text != ".param") lx_.fail("expected .param");
    out.push_back(variable(Space::Param, false, true));
    if (!lx_.accept(',')) break;
  }
  lx_.expect(')');
  return out;
}

void Parser::performance_directives(Function& f) {
  while (lx_.peek().kind == Token::Directive) {
    string_view d = lx_.next().text;
    if (d == ".maxntid" || d == ".reqntid") {
      u64 n = 1;
      do n *= small("thread count");
      while (n < (1u << 20) && lx_.accept(','));
      f.max_threads = (u32)n;
    } else if (d == ".minnctapersm" || d == ".maxnreg" || d == ".maxclusterrank" || d == ".maxnctapersm") {
      small("count");
    } else if (d == ".reqnctapercluster") {
      std::fill(f.cluster, f.cluster + 3, 1);
      int axis = 0;
      do f.cluster[axis++] = small("cluster size");
      while (axis < 3 && lx_.accept(','));
    } else if (d == ".pragma") {
      while (lx_.peek().kind == Token::String) lx_.next(), lx_.accept(',');
      lx_.accept(';');
    } else if (d != ".noreturn" && d != ".explicitcluster") {
      throw Unsupported("entry" + string(d));
    }
  }
}

void Parser::function(bool is_entry) {
  Function f;
  f.is_entry = is_entry;
  if (!is_entry && lx_.peek().is('(')) f.returns = parameters();
  if (lx_.peek().kind != Token::Word) lx_.fail("expected a function name");
  f.name = lx_.next().text;
  if (lx_.peek().is('(')) f.params = parameters();
  performance_directives(f);
  if (!lx_.accept(';')) {
    loc_ = 0;
    body(f);
    f.has_body = true;
  }
  auto known = m_.function_index.find(f.name);
  if (known == m_.function_index.end()) {
    m_.function_index[f.name] = (u32)m_.functions.size();
    m_.functions.push_back(std::move(f));
  } else if (f.has_body) {
    if (m_.functions[known->second].has_body) throw PtxError("function '" + string(f.name) + "' is defined twice");
    m_.functions[known->second] = std::move(f);
  }
}
}  // namespace kw
