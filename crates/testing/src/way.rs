//! A way to a PostgreSQL database that breaks during a commit.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// How our connections end a transaction. Each is sent on its own.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
const ROLLBACK: &[u8] = b"Q\0\0\0\x0dROLLBACK\0";

/// Where a connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Before the commit reaches the database: nothing is done.
    Before,
    /// After the database has committed: only its answer is lost.
    After,
}

/// Which commit does not get through: that of the next transaction in which this text occurs.
type Order = Arc<Mutex<Option<(Vec<u8>, Cut)>>>;

pub struct Way {
    url: String,
    order: Order,
}

impl Way {
    /// Makes a way to the database at a URL of [`crate::postgres`].
    pub fn to(url: &str) -> Self {
        let (name, rest) =
            url.trim_start_matches("postgres:///").split_once("?host=").expect("a socket");
        let (folder, user) = rest.split_once("&user=").expect("a user");
        let socket = format!("{}/.s.PGSQL.5432", folder.replace("%2F", "/"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let order = Order::default();
        let told = Arc::clone(&order);
        thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                let (socket, order) = (socket.clone(), Arc::clone(&told));
                thread::spawn(move || pass(caller, &socket, &order));
            }
        });
        Self { url: format!("postgres://{user}@127.0.0.1:{port}/{name}"), order }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Breaks a connection during the commit of the next transaction in which `text` occurs.
    pub fn cut_commit_of(&self, text: &str, cut: Cut) {
        *self.order.lock().expect("an order") = Some((text.into(), cut));
    }

    /// Returns whether there is no commit any more that is to be cut.
    pub fn has_cut(&self) -> bool {
        self.order.lock().expect("an order").is_none()
    }
}

/// Passes everything on until one of the two ends the connection, or a commit is to break it.
fn pass(mut caller: TcpStream, socket: &str, order: &Order) -> io::Result<()> {
    let mut database = UnixStream::connect(socket)?;
    let (mut answers, mut back) = (database.try_clone()?, caller.try_clone()?);
    let muted = Arc::new(AtomicBool::new(false));
    let mute = Arc::clone(&muted);
    thread::spawn(move || -> io::Result<()> {
        copy(&mut answers, |piece| match muted.load(Ordering::SeqCst) {
            true => Ok(false),
            false => back.write_all(piece).map(|()| true),
        })?;
        back.shutdown(Shutdown::Both)?;
        answers.shutdown(Shutdown::Both)
    });
    let mut seen = Vec::new();
    copy(&mut caller, |piece| {
        match (piece, taken(order, piece, &seen)) {
            (_, Some(Cut::Before)) => return Ok(false),
            (_, Some(Cut::After)) => mute.store(true, Ordering::SeqCst),
            (COMMIT | ROLLBACK, None) => seen.clear(),
            (piece, None) => seen.extend_from_slice(piece),
        }
        database.write_all(piece).map(|()| true)
    })?;
    if !mute.load(Ordering::SeqCst) {
        caller.shutdown(Shutdown::Both)?;
        database.shutdown(Shutdown::Both)?;
    }
    Ok(())
}

/// Takes the order if it is about the transaction that is about to be committed.
fn taken(order: &Order, piece: &[u8], seen: &[u8]) -> Option<Cut> {
    let mut order = order.lock().expect("an order");
    let is_it = |(text, _): &mut (Vec<u8>, Cut)| {
        piece == COMMIT && seen.windows(text.len()).any(|window| window == text.as_slice())
    };
    order.take_if(is_it).map(|(_, cut)| cut)
}

/// Gives each piece that arrives to `take`, until that returns `false`.
fn copy(from: &mut impl Read, mut take: impl FnMut(&[u8]) -> io::Result<bool>) -> io::Result<()> {
    let mut room = vec![0; 64 << 10];
    loop {
        let count = match from.read(&mut room) {
            Ok(0) | Err(_) => return Ok(()),
            Ok(count) => count,
        };
        if !take(room.get(..count).unwrap_or_default())? {
            return Ok(());
        }
    }
}
