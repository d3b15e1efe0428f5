# What the fuzz recipes need: cargo-fuzz, a compiler that measures coverage, a build that does not take ages.
# Sourced from the root of the repository, not run; sets $toolchain, $host and the arguments $fuzz_build.

cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
. .ci/unstable.sh
# Each program would be optimised as a whole when it is linked, which takes minutes.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
fuzz_build=(--features libfuzzer --sanitizer none --target-dir fuzz/target)
