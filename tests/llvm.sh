# shellcheck shell=bash
# Sets `llvm` to the version of rustc's own LLVM, to which the format of its profiles belongs, and sees to it that the
# tools that read them are there: llvm-cov-$llvm, llvm-profdata-$llvm, llvm-nm-$llvm.
llvm=$(rustc --version --verbose | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
if ! command -v "llvm-profdata-$llvm" >/dev/null; then
    [[ $(id -u) == 0 ]] || { echo "llvm-$llvm is missing; on Debian: apt-get install llvm-$llvm" >&2; exit 1; }
    echo "installing llvm-$llvm" >&2
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "llvm-$llvm" >/dev/null
fi
