//! Connections that a handler can reset.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Listens, and gives each connection a [`Wire`].
#[derive(Debug)]
pub(super) struct Wires(pub(super) TcpListener);

/// What a handler has of the connection that it answers on.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire(Arc<AtomicBool>);

impl Wire {
    /// Instead of an answer, the connection is reset.
    pub(super) fn reset(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::SeqCst) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl Listener for Wires {
    type Io = Connection;
    type Addr = Wire;

    async fn accept(&mut self) -> (Connection, Wire) {
        let (stream, _) = Listener::accept(&mut self.0).await;
        // An answer must not wait for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        let wire = Wire::default();
        (Connection { stream, wire: wire.clone() }, wire)
    }

    /// Nobody asks a wire where it is.
    fn local_addr(&self) -> io::Result<Wire> {
        let _: SocketAddr = self.0.local_addr()?;
        Ok(Wire::default())
    }
}

impl Connected<IncomingStream<'_, Wires>> for Wire {
    fn connect_info(stream: IncomingStream<'_, Wires>) -> Self {
        stream.remote_addr().clone()
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    wire: Wire,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.wire.check().is_err() {
            // Closed so, the client finds it reset.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.wire.check()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // In order, it would be ended and not reset.
        self.wire.check()?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
