// Tokenizes PTX text. Comments and white space are dropped; every token is a view into the text.
#pragma once
#include "parse/ptx.h"

namespace kw {
struct Token {
  enum Kind : u8 { End, Word, Directive, Number, String, Punct } kind = End;
  string_view text;
  bool is(char c) const { return kind == Punct && text[0] == c; }
};

class Lexer {
 public:
  explicit Lexer(string_view source) : src_(source) { next(); }
  const Token& peek() const { return tok_; }
  Token next();
  size_t start() const { return start_; }  // where the pending token begins
  [[noreturn]] void fail(const string& what) const;
  void expect(char c);
  bool accept(char c);
  void skip_line();                               // drops the rest of the line that holds the pending token
  bool at_line_end() const { return line_end_; }  // a new line began before the pending token

 private:
  void skip_space();
  string_view src_;
  size_t pos_ = 0, start_ = 0;
  bool line_end_ = false;
  Token tok_;
};
}  // namespace kw
