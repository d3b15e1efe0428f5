//! The target that must fail: it shows that a fault would be seen and that a fuzzer finds its way.

/// Panics on bytes that begin with `ring`, which a fuzzer guided by coverage finds in seconds and
/// one that is blind does not.
///
/// # Panics
///
/// On those bytes, on purpose.
pub fn canary(data: &[u8]) {
    // One branch a byte: that is the trail a fuzzer follows.
    for (at, wanted) in b"ring".iter().enumerate() {
        if data.get(at) != Some(wanted) {
            return;
        }
    }
    panic!("the canary has been found");
}
