//! Starts the broker, waits for the signal to stop, and stops it.
//!
//! Owns the order of both. Start: bind, lock the data directory, start shards, open logs, then
//! accept; what cannot listen leaves no trace on disk. Stop: stop accepting, finish what is in flight, close logs, write checkpoints, mark
//! the directory as clean.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ringlog_engine::rt::mailbox::{Mailbox, MailboxReceiver, mailboxes};
use ringlog_engine::rt::{
    BackendChoice, Counter, Counters, ShardConfig, ShardContext, ShardHandle, ShardStartError, limits,
    spawn_shard,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::budget::Budget;
use super::compaction::Compaction;
use super::control::{self, Control, ControlError};
use super::control_request::ControlRequest;
use super::data_dir::{DataDir, DataDirError};
use super::limited_log::LimitedLog;
use super::listener::{Acceptor, BindError, Bound, Endpoints, bind, check_endpoint};
use super::shard::{self, Shard, ShardSetup};
use super::shard_request::{ShardRequest, View};
use crate::config::{IoBackend, ServerConfig};

/// Messages that wait for a shard before their senders do.
const MAILBOX_CAPACITY: usize = 1024;
/// Changes to the metadata that wait for the control thread before their senders do.
const CONTROL_CAPACITY: usize = 64;
/// How often the positions that recovery starts from are stored.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(60);
/// How long a stop waits for connections to take their replies.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// Fewer open files than this leave no room for logs beside the connections.
const OPEN_FILES_MIN: u64 = 256;

/// Why the broker did not start or did not stop well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The data directory.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The metadata or the logs.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A listener.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A shard's thread.
    #[error(transparent)]
    Shard(#[from] ShardStartError),
    /// The system.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// Compaction panicked.
    #[error("compaction ended by a panic; its message is above")]
    CompactionPanic,
    /// A shard panicked.
    #[error("shard {0} ended by a panic; its message is above")]
    ShardPanic(usize),
}

/// Runs the broker until SIGINT or SIGTERM.
///
/// # Errors
///
/// What keeps it from starting, with the remedy, or from stopping cleanly.
pub fn run(config: ServerConfig) -> Result<(), ServeError> {
    let system = |what| move |source| ServeError::System { what, source };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("cannot start the control thread's runtime"))?;
    runtime.block_on(serve(config))
}

async fn serve(config: ServerConfig) -> Result<(), ServeError> {
    let began = Instant::now();
    let system = |what| move |source| ServeError::System { what, source };
    // Asked for first, so that a signal during the start is not lost.
    let mut signals = Signals::new().map_err(system("cannot wait for signals"))?;
    let open_files = limits::raise_fd_limit().map_err(system("cannot raise the limit of open files"))?;
    if open_files < OPEN_FILES_MIN {
        tracing::warn!(
            open_files,
            "very few files may be open; raise the limit (ulimit -n)"
        );
    }
    let shards = config.shards;
    let bound = config
        .listeners
        .iter()
        .map(|l| bind(l, shards))
        .collect::<Result<Vec<_>, _>>()?;
    let dir = DataDir::open(&config.data_dir, config.node_id)?;
    let endpoints = Endpoints(bound.iter().map(|bound| bound.endpoint.clone()).collect());
    let last_run = dir.begin_run()?;

    let (mailboxes, receivers) = mailboxes(shards, MAILBOX_CAPACITY);
    let compaction = Compaction::new(mailboxes.clone(), &config);
    let mut control = Control::open(dir, config, mailboxes.clone())?;
    let (control_sender, mut requests) = mpsc::channel(CONTROL_CAPACITY);
    let (start_accepting, accepting) = watch::channel(false);
    let (stop_accepting, stopping) = watch::channel(false);
    let connections = Arc::new(AtomicUsize::new(0));
    let plan = ShardPlan {
        view: control.view(),
        control: control_sender,
        mailboxes,
        endpoints: endpoints.clone(),
        connections: connections.clone(),
        accepting,
        stopping,
    };
    let handles = plan.spawn(&bound, receivers)?;
    report_backend(&handles);

    control.open_logs(&last_run).await?;
    control.remove_deleted()?;
    start_accepting.send_replace(true);
    let start_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    for bound in &bound {
        tracing::info!(address = %bound.address, advertised = %bound.endpoint, shards, start_ms, "serving");
    }
    warn_of_unreachable(endpoints);

    let (stop_compaction, compaction_stops) = watch::channel(false);
    let compaction = tokio::spawn(compaction.run(compaction_stops));
    control::run(&mut control, &mut requests, CHECKPOINT_EVERY, signals.stop()).await;
    tracing::info!("stopping");
    stop_compaction.send_replace(true);
    stop_accepting.send_replace(true);
    control.drain().await;
    let drained = control::run_until(&mut control, &mut requests, DRAIN_LIMIT, || {
        connections.load(Ordering::Relaxed) == 0
    });
    if !drained.await {
        let open = connections.load(Ordering::Relaxed);
        tracing::warn!(
            open,
            "connections still open after {DRAIN_LIMIT:?}; they are cut off"
        );
    }
    compaction.await.map_err(|_| ServeError::CompactionPanic)?;
    control.close().await?;
    let counters: Vec<_> = handles.iter().map(|handle| handle.counters().clone()).collect();
    for (index, handle) in handles.into_iter().enumerate() {
        handle.join().map_err(|_| ServeError::ShardPanic(index))?;
    }
    let sum = |counter: fn(&Counters) -> &Counter| -> u64 {
        counters.iter().map(|shard| counter(shard).value()).sum()
    };
    tracing::info!(
        sendfile_bytes = sum(|shard| &shard.sendfile_bytes),
        fetch_bytes_copied = sum(|shard| &shard.fetch_bytes_copied),
        ring_write_bytes = sum(|shard| &shard.ring_write_bytes),
        ring_syncs = sum(|shard| &shard.ring_syncs),
        blocking_ops = sum(|shard| &shard.blocking_ops),
        "stopped"
    );
    Ok(())
}

/// What every shard is started with.
struct ShardPlan {
    view: View,
    control: mpsc::Sender<ControlRequest>,
    mailboxes: Vec<Mailbox<ShardRequest>>,
    endpoints: Endpoints,
    connections: Arc<AtomicUsize>,
    accepting: watch::Receiver<bool>,
    stopping: watch::Receiver<bool>,
}

impl ShardPlan {
    fn spawn(
        self,
        bound: &[Bound],
        receivers: Vec<MailboxReceiver<ShardRequest>>,
    ) -> Result<Vec<ShardHandle<()>>, ServeError> {
        let mut handles = Vec::new();
        for (index, receiver) in receivers.into_iter().enumerate() {
            let mut sockets = Vec::new();
            for bound in bound {
                sockets.push(
                    bound.sockets[index]
                        .try_clone()
                        .map_err(|source| ServeError::System {
                            what: "cannot share a listening socket with a shard",
                            source,
                        })?,
                );
            }
            let config = ShardConfig {
                index,
                cpu: Some(index % cores()),
                name: format!("shard-{index}"),
                backend: match self.view.config.io_backend {
                    IoBackend::Auto => BackendChoice::Auto,
                    IoBackend::Ring => BackendChoice::Ring,
                    IoBackend::Blocking => BackendChoice::Blocking,
                },
            };
            let main = self.shard_main(index, sockets, receiver);
            let open_max = limits::open_files_max() / self.mailboxes.len();
            let main = move |context: ShardContext| {
                context.io.files().borrow_mut().set_open_max(open_max);
                main(context)
            };
            handles.push(spawn_shard(config, main)?);
        }
        Ok(handles)
    }

    fn shard_main(
        &self,
        index: usize,
        sockets: Vec<std::net::TcpListener>,
        receiver: MailboxReceiver<ShardRequest>,
    ) -> impl FnOnce(ShardContext) -> Pin<Box<dyn Future<Output = ()>>> + Send + use<> {
        let setup = ShardSetup {
            index,
            control: self.control.clone(),
            shards: self.mailboxes.clone(),
            view: self.view.clone(),
        };
        let endpoints = self.endpoints.clone();
        let connections = self.connections.clone();
        let (accepting, stop) = (self.accepting.clone(), self.stopping.clone());
        move |context| {
            let misbehaving = Rc::new(LimitedLog::new("connections closed for what clients did wrong"));
            let unsupported = Rc::new(LimitedLog::new("requests for groups and transactions"));
            let budget = Budget::new(setup.view.config.request_memory_bytes / setup.shards.len());
            let shard = Shard::new(setup, context.io);
            let acceptor = Acceptor {
                shard: shard.clone(),
                endpoints: Rc::new(endpoints),
                budget,
                connections,
                misbehaving: misbehaving.clone(),
                unsupported: unsupported.clone(),
                stop,
            };
            Box::pin(async move {
                for (listener, socket) in sockets.into_iter().enumerate() {
                    let (acceptor, mut accepting) = (acceptor.clone(), accepting.clone());
                    tokio::task::spawn_local(async move {
                        let _ = accepting.wait_for(|accepting| *accepting).await;
                        if let Err(error) = acceptor.run(listener, socket).await {
                            tracing::error!(%error, listener, "a listener has ended");
                        }
                    });
                }
                shard::run(shard, receiver).await;
                misbehaving.finish();
                unsupported.finish();
            })
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn report_backend(handles: &[ShardHandle<()>]) {
    for (index, handle) in handles.iter().enumerate() {
        tracing::debug!(shard = index, backend = ?handle.backend(), "shard started");
        if let Some(error) = handle.pin_error() {
            tracing::warn!(shard = index, %error, "the shard's thread is not pinned to a core");
        }
    }
    if let Some(reason) = handles.iter().find_map(ShardHandle::fallback_reason) {
        tracing::warn!(%reason, "io_uring cannot be used; storage runs on blocking helper threads, slower");
    }
}

/// Tells when a client that follows what it is told would not arrive.
fn warn_of_unreachable(endpoints: Endpoints) {
    tokio::task::spawn_blocking(move || {
        for endpoint in endpoints.0 {
            if let Err(error) = check_endpoint(&endpoint.host, endpoint.port) {
                tracing::warn!(
                    advertised = %endpoint,
                    %error,
                    "the advertised address does not lead back to this broker; clients will be sent there: \
                     set advertised.listeners"
                );
            }
        }
    });
}

/// The signals that stop the broker.
struct Signals {
    hang_up: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            hang_up: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.hang_up.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
