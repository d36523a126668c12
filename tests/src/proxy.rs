//! A TCP proxy that does to a link what networks do.

mod connection;
mod rules;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::{LocalSet, spawn_local};

use self::rules::Rules;

pub use rules::{Fate, Rule};

/// A proxy between clients and a server: what goes through is delayed, held back, lost or cut off when it is told so, also
/// while connections are open. It knows bytes, not protocols. Every connection to it is one to the server.
///
/// It runs on a thread of its own, so a test may block. It remembers all that clients send; see [`count`](Self::count).
///
/// What a network does to a link | here
/// --- | ---
/// works again | [`heal`](Self::heal)
/// leads elsewhere | [`redirect`](Self::redirect)
/// is slow | [`delay`](Self::delay)
/// stands, and delivers late what was sent meanwhile | [`hold`](Self::hold)
/// is cut without a word: what was sent is lost | [`blackhole`](Self::blackhole)
/// breaks every connection | [`reset`](Self::reset), and new ones: [`refuse`](Self::refuse)
/// breaks one half of every connection | [`half_close`](Self::half_close)
/// loses or delays one certain request | [`on_request`](Self::on_request)
/// carries a request, and loses or delays its reply | [`on_reply_to`](Self::on_reply_to)
/// loses or delays one certain reply | [`on_reply`](Self::on_reply)
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    /// Ends the thread when it is dropped.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A way on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Requests.
    ToServer,
    /// Replies.
    ToClient,
}

impl Proxy {
    /// A proxy to a server on this port of 127.0.0.1, which need not be up.
    #[must_use]
    pub fn to(port: u16) -> Self {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared { server: AtomicU16::new(port), ..Shared::default() });
        let (end, ended) = oneshot::channel();
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || run(listener, &shared, ended)
        });
        Self { port: address.port(), shared, end: Some(end), thread: Some(thread) }
    }

    /// Where it listens, on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Makes new connections to the server on this port of 127.0.0.1, as a name does that is given to another machine. Open ones stay.
    pub fn redirect(&self, port: u16) {
        self.shared.server.store(port, Ordering::SeqCst);
    }

    /// Everything goes through again, at once. What was held is delivered; connections on which something was lost are
    /// reset, since bytes that follow a gap would be nonsense. Rules that have not fired stay.
    pub fn heal(&self) {
        self.change(|control| {
            *control = Control { heals: control.heals + 1, releases: control.releases + 1, ..control.counters() };
        });
    }

    /// Whatever is sent from now on arrives this much later, at random and in order; `0..2 s` for instance.
    ///
    /// # Panics
    /// When the range is empty.
    pub fn delay(&self, latency: Range<Duration>) {
        assert!(!latency.is_empty(), "no latency in {latency:?}");
        self.change(|control| control.delay = Some((latency.start, latency.end)));
    }

    /// Holds back what goes this way until [`release`](Self::release).
    pub fn hold(&self, way: Way) {
        self.change(|control| *control.link(way) = Link::Held);
    }

    /// Delivers what [`hold`](Self::hold) or a [rule](Fate::Hold) held back.
    pub fn release(&self) {
        self.change(|control| {
            control.releases += 1;
            control.links.iter_mut().filter(|link| **link == Link::Held).for_each(|link| *link = Link::Up);
        });
    }

    /// Loses what goes this way from now on, and what is under way. Nobody is told: connections stay open, and new ones are
    /// accepted.
    pub fn blackhole(&self, way: Way) {
        self.change(|control| *control.link(way) = Link::Lost);
    }

    /// [Loses](Self::blackhole) what goes either way.
    pub fn cut(&self) {
        self.change(|control| control.links = [Link::Lost; 2]);
    }

    /// Resets all open connections, to the server and to the clients.
    pub fn reset(&self) {
        self.change(|control| control.resets += 1);
    }

    /// Resets new connections at once, as long as it is not [healed](Self::heal).
    pub fn refuse(&self) {
        self.change(|control| control.refuse = true);
    }

    /// Ends this way of all open connections; the other one stays open.
    pub fn half_close(&self, way: Way) {
        self.change(|control| control.half_closes[way as usize] += 1);
    }

    /// What happens to the `nth` request from now (the first is 1) that contains these bytes, on whichever connection, and
    /// to what follows it there. What came before it goes through.
    #[allow(clippy::must_use_candidate, reason = "not every test looks whether it fired")]
    pub fn on_request(&self, pattern: impl AsRef<[u8]>, nth: usize, fate: Fate) -> Rule {
        self.shared.lock().rules.add(rules::Place::Request, pattern.as_ref(), nth, fate)
    }

    /// What happens to the reply to the `nth` request from now that contains these bytes, and to what follows it on that
    /// connection. The request goes through, and the reply suffers after it has left the server: it was carried out.
    ///
    /// Replies to earlier requests that are still outstanding on that connection suffer too.
    #[allow(clippy::must_use_candidate, reason = "not every test looks whether it fired")]
    pub fn on_reply_to(&self, pattern: impl AsRef<[u8]>, nth: usize, fate: Fate) -> Rule {
        self.shared.lock().rules.add(rules::Place::ReplyTo, pattern.as_ref(), nth, fate)
    }

    /// What happens to the `nth` reply from now that contains these bytes, and to what follows it on that connection.
    #[allow(clippy::must_use_candidate, reason = "not every test looks whether it fired")]
    pub fn on_reply(&self, pattern: impl AsRef<[u8]>, nth: usize, fate: Fate) -> Rule {
        self.shared.lock().rules.add(rules::Place::Reply, pattern.as_ref(), nth, fate)
    }

    /// Takes back all rules that have not fired.
    pub fn drop_rules(&self) {
        self.shared.lock().rules = Rules::default();
    }

    /// How often clients sent these bytes since the last [`forget`](Self::forget).
    #[must_use]
    pub fn count(&self, pattern: impl AsRef<[u8]>) -> usize {
        let sent = &self.shared.lock().sent;
        sent.values().map(|sent| rules::find_all(sent, pattern.as_ref()).count()).sum()
    }

    /// Begins to count anew.
    pub fn forget(&self) {
        self.shared.lock().sent.clear();
    }

    /// How many connections were made through it.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.lock().accepted
    }

    /// How many of them are open.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.lock().open
    }

    fn change(&self, change: impl FnOnce(&mut Control)) {
        self.shared.control.send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It panics only if a test made it: that one has failed.
            let _ = thread.join();
        }
    }
}

/// What all connections look at.
#[derive(Debug, Default)]
struct Shared {
    /// Its port.
    server: AtomicU16,
    control: watch::Sender<Control>,
    state: Mutex<State>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct State {
    rules: Rules,
    /// What the clients sent, by connection.
    sent: BTreeMap<usize, Vec<u8>>,
    accepted: usize,
    open: usize,
}

/// How the link is, and how often which order was given: an order concerns the connections that were open then.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    links: [Link; 2],
    delay: Option<(Duration, Duration)>,
    refuse: bool,
    heals: u64,
    releases: u64,
    resets: u64,
    half_closes: [u64; 2],
}

impl Control {
    const fn link(&mut self, way: Way) -> &mut Link {
        &mut self.links[way as usize]
    }

    fn counters(self) -> Self {
        Self { links: [Link::Up; 2], delay: None, refuse: false, ..self }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Link {
    #[default]
    Up,
    Held,
    Lost,
}

#[tokio::main(flavor = "current_thread")]
async fn run(listener: StdListener, shared: &Arc<Shared>, ended: oneshot::Receiver<()>) {
    listener.set_nonblocking(true).expect("a bound socket");
    let listener = TcpListener::from_std(listener).expect("a bound socket");
    let accept = async {
        loop {
            // An error concerns one client: it has gone already.
            let Ok((client, _)) = listener.accept().await else { continue };
            let server = SocketAddr::from((Ipv4Addr::LOCALHOST, shared.server.load(Ordering::SeqCst)));
            spawn_local(connection::serve(client, server, Arc::clone(shared)));
        }
    };
    let connections = LocalSet::new();
    tokio::select! {
        () = connections.run_until(accept) => {}
        _ = ended => {}
    }
}
