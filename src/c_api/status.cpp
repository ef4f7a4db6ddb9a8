#include "c_api/status.hpp"

#include <exception>
#include <new>
#include <string>

#include "rapt/error.hpp"
#include "rapt/version.hpp"

namespace rapt::c_api {
namespace {

// The text lives in `owned` unless there was no memory for it.
struct LastError {
  std::string owned;
  const char* text = "";

  void set(const char* message) noexcept {
    try {
      owned = message;
      text = owned.c_str();
    } catch (...) {
      text = "out of memory while keeping an error message";
    }
  }
};

thread_local LastError last_error;

}  // namespace

rapt_status status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    last_error.set(error.what());
    return static_cast<rapt_status>(error.code());
  } catch (const std::bad_alloc&) {
    last_error.set("an allocation on the host failed");
    return RAPT_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    last_error.set(error.what());
    return RAPT_INTERNAL;
  } catch (...) {
    last_error.set("an exception that is no std::exception, perhaps thrown by a callback");
    return RAPT_INTERNAL;
  }
}

}  // namespace rapt::c_api

const char* rapt_status_name(rapt_status status) {
  return status == RAPT_OK ? "ok" : rapt::to_string(static_cast<rapt::ErrorCode>(status));
}

const char* rapt_last_error_message(void) {
  return rapt::c_api::last_error.text;
}

const char* rapt_version(void) {
  return rapt::version();
}
