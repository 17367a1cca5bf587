#include "outbox/trace_context.h"

#include <gtest/gtest.h>

namespace walpost::outbox {
namespace {

constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContextTest, TraceparentIsFoundInWhatJavaStores) {
  const std::string line = std::string("traceparent=") + kTrace;
  for (const std::string& text :
       {line, "#Sat Nov 21 15:22:50 UTC 2026\n" + line + "\n", "a=b\r\n" + line + "\r\nc=d\r\n",
        " \t" + line, std::string("traceparent : ") + kTrace, std::string("traceparent ") + kTrace,
        "#a comment never goes on \\\n" + line, "a=two backslashes\\\\\n" + line,
        "traceparent=earlier\n" + line}) {
    EXPECT_EQ(TraceparentOf(text), kTrace) << text;
  }
}

TEST(TraceContextTest, WhatIsNoTraceparentIsNotTaken) {
  const std::string line = std::string("traceparent=") + kTrace;
  for (const std::string& text :
       {std::string(), std::string("traceparent"), std::string("traceparent=\n"), "#" + line,
        "!" + line, "x" + line, "traceparents=" + std::string(kTrace),
        "a=a line that goes on\\\n" + line, "a=a line that goes on\\\r\n" + line,
        std::string("traceparent=00\\u0041")}) {
    EXPECT_EQ(TraceparentOf(text), "") << text;
  }
}

}  // namespace
}  // namespace walpost::outbox
