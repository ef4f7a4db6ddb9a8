// Marks what leaves the shared library; everything else is hidden.
#pragma once

#if defined(RAPT_STATIC)
#define RAPT_API
#else
#define RAPT_API __attribute__((visibility("default")))
#endif
