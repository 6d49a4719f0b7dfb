// The one exception type of the core. bind/ turns it into the class of cortiq.errors named by `kind`.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace cortiq {

struct Error : std::runtime_error {
    Error(std::string kind_, std::string code_, const std::string& message)
        : std::runtime_error(message), kind(std::move(kind_)), code(std::move(code_)) {}
    std::string kind;  // class name in cortiq.errors, such as "Bounds"
    std::string code;
};

}  // namespace cortiq
