//! A bare connection: exact bytes, early ends.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A connection that sends exactly what it is told and can end at any moment.
#[derive(Debug)]
pub struct Raw(TcpStream);

impl Raw {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a listening server");
        stream.set_nodelay(true).expect("a connected socket");
        Self(stream)
    }

    /// Sends these bytes.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.expect("an open connection");
    }

    /// Reads until the server closes the connection, for at most 30 s.
    pub async fn read_all(&mut self) -> Vec<u8> {
        let mut read = Vec::new();
        let end = timeout(Duration::from_secs(30), self.0.read_to_end(&mut read)).await;
        // A reset is an end too; what came before it counts.
        assert!(end.is_ok(), "the server leaves the connection open after {:?}", String::from_utf8_lossy(&read));
        read
    }

    /// Says that nothing more is sent, and goes on reading.
    pub async fn finish_sending(&mut self) {
        self.0.shutdown().await.expect("an open connection");
    }

    /// Closes the connection in order: the server reads its end.
    pub fn close(self) {
        drop(self);
    }

    /// Resets the connection: the server's next read or write fails.
    pub fn reset(self) {
        self.0.set_zero_linger().expect("a connected socket");
    }
}

/// An HTTP/1.1 request as bytes, with `Content-Length` and `Connection: close`, for a start that tests then damage.
#[must_use]
pub fn request_bytes(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: testbed\r\nconnection: close\r\ncontent-length: {length}\r\n{lines}\r\n{body}"
    )
    .into_bytes()
}
