//! The name or address under which other machines most likely reach this one.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};

/// A host to advertise where the broker listens on every address: this machine's name if it resolves to
/// more than the loopback, else the address of its default route, else 127.0.0.1. May ask the resolver.
pub(super) fn host() -> String {
    named_host()
        .or_else(routed_host)
        .unwrap_or_else(|| Ipv4Addr::LOCALHOST.to_string())
}

fn named_host() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    let mut addresses = (name, 0).to_socket_addrs().ok()?;
    // Many distributions map the own name to 127.0.1.1, which leads other machines to themselves.
    addresses
        .any(|address| !address.ip().is_loopback())
        .then(|| name.to_owned())
}

/// Connecting a UDP socket sends nothing; it only makes the kernel choose a source address. The targets
/// are documentation addresses (RFC 5737, RFC 3849).
fn routed_host() -> Option<String> {
    let routes: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        (
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        ),
    ];
    routes.into_iter().find_map(|(from, to)| {
        let socket = UdpSocket::bind((from, 0)).ok()?;
        socket.connect((to, 9)).ok()?;
        let ip = socket.local_addr().ok()?.ip();
        (!ip.is_unspecified() && !ip.is_loopback()).then(|| ip.to_string())
    })
}
