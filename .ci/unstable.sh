# Which compiler takes unstable flags (sanitizers, coverage): a nightly where rustup has one, else the default one under a variable.
# Sourced, not run; sets $toolchain, which is empty for the default one, and says which it is.

if rustup run nightly cargo --version >/dev/null 2>&1; then
    toolchain=+nightly
    echo "with $(rustc +nightly --version)"
else
    toolchain=
    export RUSTC_BOOTSTRAP=1
    echo "with $(rustc --version) under RUSTC_BOOTSTRAP=1: there is no nightly toolchain"
fi
host=$(rustc -vV | sed -n 's/^host: //p')
