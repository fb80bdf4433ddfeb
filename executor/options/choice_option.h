#pragma once

// An option whose value is a name of an enum. CLI11's own prints the enum's number, which is no text if it has one
// byte.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "core/base/object_reader.h"

namespace fsdp::executor {

template <class E>
CLI::Option* add_choice(CLI::App& app, const std::string& flag, E& to, const EnumTable<E>& table,
                        const std::string& help) {
  std::vector<std::string> names;
  for (const EnumName<E>& each : table.names) names.emplace_back(each.name);
  const auto choose = [&to, &table](const std::string& name) {
    for (const EnumName<E>& each : table.names) {
      if (each.name == name) to = each.value;
    }
  };
  return app.add_option_function<std::string>(flag, choose, help)->check(CLI::IsMember(names));
}

}  // namespace fsdp::executor
