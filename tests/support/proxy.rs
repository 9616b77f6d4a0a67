//! A TCP proxy that delays, stalls or cuts what passes.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
};

pub(crate) struct Proxy {
    port: u16,
    faults: Arc<Faults>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Faults {
    delay_us: AtomicU64,
    is_stalled: AtomicBool,
}

impl Proxy {
    pub(crate) async fn start(host: &str, port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let faults = Arc::new(Faults::default());
        let mut tasks = JoinSet::new();
        let own_port = listener.local_addr().unwrap().port();
        tasks.spawn(accept(listener, (host.to_owned(), port), Arc::clone(&faults)));
        Self { port: own_port, faults, _tasks: tasks }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Every packet waits this long, in both directions.
    pub(crate) fn delay(&self, delay: Duration) {
        self.faults.delay_us.store(u64::try_from(delay.as_micros()).unwrap(), Ordering::Relaxed);
    }

    /// While stalled nothing passes, and connections stay open.
    pub(crate) fn stall(&self, is_stalled: bool) {
        self.faults.is_stalled.store(is_stalled, Ordering::Relaxed);
    }
}

async fn accept(listener: TcpListener, target: (String, u16), faults: Arc<Faults>) {
    let mut pipes = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect((target.0.as_str(), target.1)).await else { continue };
        let ((client_in, client_out), (server_in, server_out)) = (client.into_split(), server.into_split());
        pipes.spawn(pipe(client_in, server_out, Arc::clone(&faults)));
        pipes.spawn(pipe(server_in, client_out, Arc::clone(&faults)));
    }
}

async fn pipe(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: Arc<Faults>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        tokio::time::sleep(Duration::from_micros(faults.delay_us.load(Ordering::Relaxed))).await;
        while faults.is_stalled.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
