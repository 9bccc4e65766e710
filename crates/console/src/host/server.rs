//! Serves HTTP for a module of the manager role: one request on each connection, with bounds on connections, bytes and
//! time.

use crate::http::{self, Answer, Request};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Most connections of a module at a time.
pub const CONNECTIONS: usize = 32;
/// Interval at which the wanted address is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// A future of a module.
pub type Answering<T> = Pin<Box<dyn Future<Output = T>>>;

/// How a module serves.
#[derive(Clone)]
pub enum Transport {
    /// Without encryption.
    Plain,
    /// Over TLS.
    Tls(Arc<rustls::ServerConfig>),
}

/// A module that serves HTTP.
pub trait Module: 'static {
    /// Name, for logs.
    fn name(&self) -> &'static str;
    /// Where to listen, and how; `None` while the module does not serve. Looked at each second.
    fn wanted(&self) -> Option<(SocketAddr, Transport)>;
    /// Announces where the module serves, or that it does not.
    fn offer(&self, at: Option<SocketAddr>);
    /// Answers a request.
    fn answer(self: Rc<Self>, request: Request, from: IpAddr) -> Answering<Answer>;
    /// Time for a request and its answer.
    fn time(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// Serves a module for ever.
pub async fn run<M: Module>(module: Rc<M>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut listener: Option<TcpListener> = None;
    let mut at: Option<SocketAddr> = None;
    let mut look = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = look.tick() => {
                let want = module.wanted().map(|(a, _)| a);
                if want != at || want.is_some() && listener.is_none() {
                    listener = None;
                    if let Some(a) = want {
                        match TcpListener::bind(a).await {
                            Ok(l) => listener = Some(l),
                            // One line for an address; the call is repeated each second.
                            Err(e) if want != at => tracing::warn!("mgr: {} cannot be served at {a}: {e}", module.name()),
                            Err(_) => {}
                        }
                    }
                    at = want;
                }
                module.offer(at.filter(|_| listener.is_some()));
            }
            (stream, from) = next(listener.as_ref(), module.name()) => {
                // A peer beyond the bound is sent away at once.
                let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
                let module = Rc::clone(&module);
                tokio::task::spawn_local(async move {
                    let _slot = slot;
                    // A client that is slow or gone concerns nobody else.
                    let _ = tokio::time::timeout(module.time(), connection(Rc::clone(&module), stream, from)).await;
                });
            }
        }
    }
}

/// The next connection; never without a listener.
async fn next(l: Option<&TcpListener>, name: &str) -> (TcpStream, IpAddr) {
    let Some(l) = l else { return std::future::pending().await };
    loop {
        match l.accept().await {
            Ok((s, from)) => return (s, from.ip()),
            Err(e) => {
                tracing::warn!("mgr: {name}: accept: {e}");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

async fn connection<M: Module>(module: Rc<M>, stream: TcpStream, from: IpAddr) -> std::io::Result<()> {
    match module.wanted() {
        None => Ok(()),
        Some((_, Transport::Plain)) => one(module, stream, from).await,
        Some((_, Transport::Tls(config))) => {
            let stream = tokio_rustls::TlsAcceptor::from(config).accept(stream).await?;
            one(module, stream, from).await
        }
    }
}

/// Reads a request and answers it.
async fn one<M: Module>(
    module: Rc<M>,
    mut s: impl AsyncRead + AsyncWrite + Unpin,
    from: IpAddr,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let request = loop {
        let mut part = [0; 4096];
        let n = s.read(&mut part).await?;
        bytes.extend_from_slice(part.get(..n).unwrap_or_default());
        match http::parse(&bytes) {
            Ok(None) if n == 0 => return Ok(()),
            Ok(None) => {}
            Ok(Some(r)) => break Ok(r),
            Err(refusal) => break Err(refusal),
        }
    };
    let head_only = request.as_ref().is_ok_and(|r| r.head_only);
    let answer: Answer = match request {
        Ok(r) => module.answer(r, from).await,
        Err(refusal) => refusal.into(),
    };
    s.write_all(&if head_only { answer.head() } else { answer.bytes() }).await?;
    s.shutdown().await
}
