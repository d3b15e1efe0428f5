//! Listening sockets: bound once at start, one for each shard and address, shared by the kernel.
//!
//! Knows no requests. The kernel spreads new connections over the shards' sockets (SO_REUSEPORT).

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use super::budget::Budget;
use super::connection::{self, Context};
use super::limited_log::LimitedLog;
use super::shard::Shard;
use crate::config::Listener;

/// Connections the kernel holds until they are accepted.
const BACKLOG: u32 = 1024;

/// A pause after an accept that failed for want of descriptors or memory: to try again at once would
/// only burn the core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What clients of one listener are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: i32,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// The endpoints of all listeners, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints(pub(crate) Vec<Endpoint>);

impl Endpoints {
    pub(crate) fn of(&self, listener: usize) -> &Endpoint {
        &self.0[listener]
    }
}

/// The sockets of one listener.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) address: SocketAddr,
    pub(crate) endpoint: Endpoint,
    /// One for each shard.
    pub(crate) sockets: Vec<std::net::TcpListener>,
}

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The name has no address.
    #[error(
        "listener {listener}: the host \"{host}\" cannot be resolved: {source}; listen on an address of this machine"
    )]
    Resolve {
        /// The listener, as configured.
        listener: String,
        /// Its host.
        host: String,
        /// The cause.
        source: io::Error,
    },
    /// Another program listens there.
    #[error("{address} is in use by another program; stop it, or listen elsewhere with --listen (listeners)")]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The system refused.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

/// Binds `listener` once for each shard. Needs a runtime.
pub(crate) fn bind(listener: &Listener, shards: usize) -> Result<Bound, BindError> {
    let host = if listener.host.is_empty() {
        "0.0.0.0"
    } else {
        &listener.host
    };
    let resolve = |source| BindError::Resolve {
        listener: listener.to_string(),
        host: host.to_owned(),
        source,
    };
    let mut addresses = (host, listener.port).to_socket_addrs().map_err(resolve)?;
    let no_address = || resolve(io::Error::new(io::ErrorKind::NotFound, "no address"));
    let address = addresses.next().ok_or_else(no_address)?;
    let error = |source: io::Error| bind_error(address, source);
    // A socket that shares its port would join another ringlog's without a word: one that does not
    // share finds out whether the port is free.
    if address.port() != 0 {
        open(address, false).map_err(error)?;
    }
    let first = open(address, true).map_err(error)?;
    // With port 0 the kernel has chosen one; the other shards share it.
    let address = first.local_addr().map_err(error)?;
    let mut sockets = vec![first];
    for _ in 1..shards {
        sockets.push(open(address, true).map_err(error)?);
    }
    let port = if listener.advertised_port == 0 {
        address.port()
    } else {
        listener.advertised_port
    };
    let endpoint = Endpoint {
        host: listener.advertised_host.clone(),
        port: port.into(),
    };
    Ok(Bound {
        address,
        endpoint,
        sockets,
    })
}

fn bind_error(address: SocketAddr, source: io::Error) -> BindError {
    match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address },
        _ => BindError::Io { address, source },
    }
}

fn open(address: SocketAddr, share: bool) -> io::Result<std::net::TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(share)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Whether a client that was told this address reaches a socket; the reason if not. Blocks.
pub(crate) fn check_endpoint(host: &str, port: i32) -> Result<(), io::Error> {
    let port = u16::try_from(port).unwrap_or(0);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What the connections of one shard share.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    pub(crate) shard: Rc<Shard>,
    pub(crate) endpoints: Rc<Endpoints>,
    pub(crate) budget: Rc<Budget>,
    /// Connections of the whole broker.
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) misbehaving: Rc<LimitedLog>,
    pub(crate) unsupported: Rc<LimitedLog>,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Counts a connection of the broker while it lives.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Acceptor {
    /// Accepts connections on `socket` until the broker stops.
    pub(crate) async fn run(mut self, listener: usize, socket: std::net::TcpListener) -> io::Result<()> {
        let socket = TcpListener::from_std(socket)?;
        let (failed, refused) = (
            LimitedLog::new("connections that could not be accepted"),
            LimitedLog::new("connections refused at the limit"),
        );
        loop {
            let accepted = tokio::select! {
                _ = self.stop.wait_for(|stop| *stop) => return Ok(()),
                accepted = socket.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    failed.log(|| tracing::warn!(%error, "a connection could not be accepted"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let limit = self.shard.config().connections_max;
            let counted = Counted(self.connections.clone());
            if self.connections.fetch_add(1, Ordering::Relaxed) >= limit {
                refused.log(|| {
                    tracing::warn!(%peer, limit, "connection refused: as many are open as max.connections allows");
                });
                continue;
            }
            let context = Context {
                shard: self.shard.clone(),
                endpoints: self.endpoints.clone(),
                listener,
                peer,
                misbehaving: self.misbehaving.clone(),
                unsupported: self.unsupported.clone(),
            };
            let (budget, stop) = (self.budget.clone(), self.stop.clone());
            tokio::task::spawn_local(async move {
                connection::serve(context, stream, budget, stop).await;
                drop(counted);
            });
        }
    }
}
