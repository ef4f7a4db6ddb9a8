// The version of the headers as numbers, for C and C++. CMake reads it from here.
#ifndef RAPT_VERSION_H_
#define RAPT_VERSION_H_

#define RAPT_VERSION_MAJOR 0
#define RAPT_VERSION_MINOR 1
#define RAPT_VERSION_PATCH 0

#endif
