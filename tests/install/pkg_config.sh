# Builds main.cpp and main.c of the current folder against the rapt that pkg-config finds.
#
# usage: pkg_config.sh shared|static
case $1 in
shared)
  # begin: shared
  c++ -std=c++20 main.cpp -o serve_cpp $(pkg-config --cflags --libs rapt)
  cc -std=c99 main.c -o serve_c $(pkg-config --cflags --libs rapt) -lm
  # end: shared
  ;;
static)
  # begin: static
  c++ -std=c++20 main.cpp -o serve_cpp $(pkg-config --static --cflags --libs rapt)
  cc -std=c99 main.c -o serve_c $(pkg-config --static --cflags --libs rapt)
  # end: static
  ;;
esac
