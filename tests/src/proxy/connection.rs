//! One connection through the proxy.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::rules::{Fate, Place, Tail};
use super::{Control, Link, Shared, Way};

pub(super) async fn serve(client: TcpStream, server: SocketAddr, shared: Arc<Shared>) {
    let number = {
        let mut state = shared.lock();
        state.accepted += 1;
        state.open += 1;
        state.accepted
    };
    let connection = Connection {
        number,
        control: shared.control.subscribe(),
        shared: &shared,
        since: *shared.control.borrow(),
        lost: Default::default(),
        reply_fate: Cell::new(None),
    };
    if connection.since.refuse {
        reset(client);
    } else {
        match TcpStream::connect(server).await {
            Ok(server) => connection.run(client, server).await,
            Err(_) => reset(client),
        }
    }
    shared.lock().open -= 1;
}

struct Connection<'s> {
    number: usize,
    shared: &'s Shared,
    control: watch::Receiver<Control>,
    /// How it was when this connection was made.
    since: Control,
    /// For each way, how often the link had been healed when the first byte was lost here.
    lost: [Cell<Option<u64>>; 2],
    /// What happens to the next reply.
    reply_fate: Cell<Option<Fate>>,
}

/// Why a connection ends before both sides have ended it.
enum Break {
    /// A rule wants it.
    Rule,
    /// The test wants it, or a side broke it.
    Both,
}

/// What is on its way.
struct Parcel {
    due: Instant,
    /// How often the link had been released when it was held back, if a rule did.
    held: Option<u64>,
    /// None is the end of the stream.
    bytes: Option<Bytes>,
}

impl Connection<'_> {
    async fn run(&self, mut client: TcpStream, mut server: TcpStream) {
        // An error means that it is closed already, which the first read shows.
        let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
        let broken = {
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            let both = async {
                tokio::try_join!(
                    self.carry(Way::ToServer, from_client, to_server),
                    self.carry(Way::ToClient, from_server, to_client)
                )
            };
            tokio::select! {
                carried = both => carried.err(),
                () = self.reset_asked() => Some(Break::Both),
            }
        };
        match broken {
            None => {}
            Some(Break::Both) => {
                reset(client);
                reset(server);
            }
            Some(Break::Rule) => {
                reset(client);
                end_in_order(server).await;
            }
        }
    }

    async fn reset_asked(&self) {
        let mut control = self.control.clone();
        let healed = |lost: &Cell<Option<u64>>, now: &Control| lost.get().is_some_and(|then| now.heals > then);
        let asked = |now: &Control| now.resets > self.since.resets || self.lost.iter().any(|lost| healed(lost, now));
        // The sender lives as long as `shared`.
        let _ = control.wait_for(asked).await;
    }

    async fn carry(&self, way: Way, from: ReadHalf<'_>, to: WriteHalf<'_>) -> Result<(), Break> {
        let (parcels, arriving) = mpsc::unbounded_channel();
        tokio::try_join!(self.take(way, from, parcels), self.deliver(way, to, arriving)).map(|_| ())
    }

    async fn take(
        &self,
        way: Way,
        mut from: ReadHalf<'_>,
        parcels: mpsc::UnboundedSender<Parcel>,
    ) -> Result<(), Break> {
        let (mut tail, mut silent, mut held) = (Tail::default(), false, None);
        let mut due = Instant::now();
        loop {
            let mut buffer = vec![0; 16 * 1024];
            let read = from.read(&mut buffer).await.map_err(|_| Break::Both)?;
            buffer.truncate(read);
            let mut bytes = Bytes::from(buffer);
            // In order, whatever the latency of each.
            due = due.max(self.due());
            let send = |bytes, held| {
                // An error means that the receiver of the bytes has ended this way.
                let _ = parcels.send(Parcel { due, held, bytes });
            };
            if read == 0 {
                if !silent {
                    send(None, held);
                }
                return Ok(());
            }
            if let Some((at, fate)) = self.judge(way, &mut tail, &bytes) {
                send(Some(bytes.split_to(at)), held);
                match fate {
                    Fate::Reset => return Err(Break::Rule),
                    Fate::Silence => silent = true,
                    Fate::Hold => held = Some(self.control.borrow().releases),
                }
            }
            if silent {
                self.lose(way);
            } else {
                send(Some(bytes), held);
            }
        }
    }

    /// How many bytes go through before a rule's fate begins.
    fn judge(&self, way: Way, tail: &mut Tail, bytes: &Bytes) -> Option<(usize, Fate)> {
        let mut state = self.shared.lock();
        if way == Way::ToServer {
            state.sent.entry(self.number).or_default().extend_from_slice(bytes);
        }
        if let Some(fate) = self.reply_fate.get().filter(|_| way == Way::ToClient) {
            self.reply_fate.set(None);
            return Some((0, fate));
        }
        let places = if way == Way::ToServer { &[Place::Request, Place::ReplyTo][..] } else { &[Place::Reply] };
        let fired = state.rules.fire(places, tail, bytes)?;
        fired.confirm();
        if fired.place == Place::ReplyTo {
            self.reply_fate.set(Some(fired.fate));
            return None;
        }
        Some((fired.at, fired.fate))
    }

    fn due(&self) -> Instant {
        let Some((least, most)) = self.control.borrow().delay else { return Instant::now() };
        Instant::now() + rand::rng().random_range(least..most)
    }

    fn lose(&self, way: Way) {
        let lost = &self.lost[way as usize];
        lost.set(lost.get().or(Some(self.control.borrow().heals)));
    }

    async fn deliver(
        &self,
        way: Way,
        mut to: WriteHalf<'_>,
        mut parcels: mpsc::UnboundedReceiver<Parcel>,
    ) -> Result<(), Break> {
        let mut control = self.control.clone();
        let half_closed = async {
            let mut control = self.control.clone();
            let index = way as usize;
            let _ = control.wait_for(|now| now.half_closes[index] > self.since.half_closes[index]).await;
        };
        tokio::pin!(half_closed);
        loop {
            let parcel = tokio::select! {
                parcel = parcels.recv() => parcel,
                () = &mut half_closed => Some(Parcel { due: Instant::now(), held: None, bytes: None }),
            };
            let Some(parcel) = parcel else { return Ok(()) };
            sleep_until(parcel.due).await;
            let free = |now: &Control| {
                now.links[way as usize] != Link::Held && parcel.held.is_none_or(|then| now.releases > then)
            };
            // The sender lives as long as `shared`.
            let lost = control.wait_for(free).await.is_ok_and(|now| now.links[way as usize] == Link::Lost);
            // What follows a gap is lost too.
            if lost || self.lost[way as usize].get().is_some() {
                self.lose(way);
                continue;
            }
            let Some(bytes) = parcel.bytes else {
                // An error means that it is closed already.
                let _ = to.shutdown().await;
                return Ok(());
            };
            to.write_all(&bytes).await.map_err(|_| Break::Both)?;
        }
    }
}

/// The peer finds the connection reset.
fn reset(stream: TcpStream) {
    // An error means that it is closed already.
    let _ = stream.set_zero_linger();
    drop(stream);
}

/// Lets the server read and carry out all that it was sent.
async fn end_in_order(mut server: TcpStream) {
    let drain = async {
        server.shutdown().await?;
        tokio::io::copy(&mut server, &mut tokio::io::sink()).await?;
        io::Result::Ok(())
    };
    let _ = timeout(Duration::from_secs(10), drain).await;
}
