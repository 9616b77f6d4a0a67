//! A bad network between Outbill and a server.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A TCP proxy on a port of its own that can delay, swallow, and cut what passes.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    faults: Arc<Faults>,
    acceptor: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Faults {
    /// The connection on which this passes towards the server is cut before it arrives.
    poison: Mutex<Option<Vec<u8>>>,
    delay: Mutex<Duration>,
    /// Nothing arrives any more, and nobody is told: a firewall that forgot the connection.
    swallows: AtomicBool,
    refuses: AtomicBool,
    /// Counts how often all connections were cut.
    cuts: watch::Sender<usize>,
    connections: AtomicUsize,
    poisoned: AtomicUsize,
}

impl Proxy {
    /// A proxy to `host:port`.
    pub(crate) async fn to(upstream: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let faults = Arc::new(Faults {
            poison: Mutex::default(),
            delay: Mutex::default(),
            swallows: AtomicBool::default(),
            refuses: AtomicBool::default(),
            cuts: watch::Sender::new(0),
            connections: AtomicUsize::default(),
            poisoned: AtomicUsize::default(),
        });
        let shared = Arc::clone(&faults);
        let acceptor = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                if !shared.refuses.load(Ordering::SeqCst) {
                    tokio::spawn(pass(client, upstream.clone(), Arc::clone(&shared)));
                }
            }
        });
        Self { port, faults, acceptor }
    }

    /// A proxy to a broker, and the broker's URL by way of it.
    pub(crate) async fn to_broker(url: &str) -> (Self, String) {
        let uri: lapin::uri::AMQPUri = url.parse().unwrap();
        let (host, port) = (&uri.authority.host, uri.authority.port);
        let proxy = Self::to(format!("{host}:{port}")).await;
        let url = url.replace(&format!("{host}:{port}"), &format!("127.0.0.1:{}", proxy.port));
        (proxy, url)
    }

    pub(crate) fn cut_when(&self, poison: &str) {
        *self.faults.poison.lock().unwrap() = Some(poison.as_bytes().to_vec());
    }

    pub(crate) fn delay(&self, delay: Duration) {
        *self.faults.delay.lock().unwrap() = delay;
    }

    pub(crate) fn swallow(&self, swallows: bool) {
        self.faults.swallows.store(swallows, Ordering::SeqCst);
    }

    /// New connections are closed at once while this is on.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.faults.refuses.store(refuses, Ordering::SeqCst);
    }

    pub(crate) fn cut_all(&self) {
        self.faults.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Connections that were ever made.
    pub(crate) fn connections(&self) -> usize {
        self.faults.connections.load(Ordering::SeqCst)
    }

    /// Connections that the poison has cut.
    pub(crate) fn poisoned(&self) -> usize {
        self.faults.poisoned.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

async fn pass(client: TcpStream, upstream: String, faults: Arc<Faults>) {
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    let mut cuts = faults.cuts.subscribe();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = pump(from_client, to_server, &faults, true) => {}
        () = pump(from_server, to_client, &faults, false) => {}
        _ = cuts.changed() => {}
    }
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    faults: &Faults,
    to_server: bool,
) {
    let mut buffer = vec![0; 64 << 10];
    // The end of what passed before: a pattern may be spread over two reads.
    let mut tail: Vec<u8> = Vec::new();
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 {
            return;
        }
        let delay = *faults.delay.lock().unwrap();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let poison = faults.poison.lock().unwrap().clone().filter(|_| to_server);
        if let Some(poison) = poison {
            tail.extend_from_slice(&buffer[..count]);
            if tail.windows(poison.len()).any(|window| window == poison) {
                faults.poisoned.fetch_add(1, Ordering::SeqCst);
                return;
            }
            tail.drain(..tail.len().saturating_sub(poison.len() - 1));
        }
        if !faults.swallows.load(Ordering::SeqCst) && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
