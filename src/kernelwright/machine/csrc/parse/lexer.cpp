#include "parse/lexer.h"

#include <cctype>

namespace kw {
static bool word_char(char c) { return std::isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%'; }

void Lexer::skip_space() {
  line_end_ = false;
  while (pos_ < src_.size()) {
    char c = src_[pos_];
    if (c == '\n') line_end_ = true;
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      pos_++;
    } else if (c == '/' && pos_ + 1 < src_.size() && src_[pos_ + 1] == '/') {
      while (pos_ < src_.size() && src_[pos_] != '\n') pos_++;
    } else if (c == '/' && pos_ + 1 < src_.size() && src_[pos_ + 1] == '*') {
      size_t end = src_.find("*/", pos_ + 2);
      pos_ = end == string_view::npos ? src_.size() : end + 2;
    } else {
      return;
    }
  }
}

Token Lexer::next() {
  Token old = tok_;
  skip_space();
  start_ = pos_;
  if (pos_ >= src_.size()) {
    tok_ = Token{};
    return old;
  }
  char c = src_[pos_];
  size_t end = pos_ + 1;
  Token::Kind kind = Token::Punct;
  auto at = [&](size_t i) { return i < src_.size() ? src_[i] : '\0'; };
  if (std::isdigit((unsigned char)c)) {
    kind = Token::Number;
    while (std::isalnum((unsigned char)at(end)) || (at(end) == '.' && std::isdigit((unsigned char)at(end + 1))) ||
           ((at(end) == '+' || at(end) == '-') && (at(end - 1) == 'e' || at(end - 1) == 'E') && at(pos_ + 1) != 'x' &&
            at(pos_ + 1) != 'X' && at(pos_ + 1) != 'f' && at(pos_ + 1) != 'd'))
      end++;
  } else if (word_char(c) || (c == '.' && word_char(at(pos_ + 1)))) {
    kind = c == '.' ? Token::Directive : Token::Word;
    for (;;) {
      if (word_char(at(end)))
        end++;
      else if (kind == Token::Word && at(end) == '.' && word_char(at(end + 1)))
        end += 2;
      else if (at(end) == ':' && at(end + 1) == ':' && word_char(at(end + 2)))
        end += 3;
      else
        break;
    }
  } else if (c == '"') {
    kind = Token::String;
    while (end < src_.size() && src_[end] != '"' && src_[end] != '\n') end++;
    end = end < src_.size() ? end + 1 : end;
  }
  tok_ = Token{kind, src_.substr(pos_, end - pos_)};
  pos_ = end;
  return old;
}

void Lexer::fail(const string& what) const {
  size_t line = 1;
  for (size_t i = 0; i < start_ && i < src_.size(); i++) line += src_[i] == '\n';
  string found = tok_.kind == Token::End ? "the end" : "'" + string(tok_.text.substr(0, 60)) + "'";
  throw PtxError("PTX line " + std::to_string(line) + ": " + what + ", found " + found);
}

void Lexer::expect(char c) {
  if (!tok_.is(c)) fail(string("expected '") + c + "'");
  next();
}

bool Lexer::accept(char c) {
  if (!tok_.is(c)) return false;
  next();
  return true;
}

void Lexer::skip_line() {
  while (pos_ < src_.size() && src_[pos_] != '\n') pos_++;
  next();
}
}  // namespace kw
