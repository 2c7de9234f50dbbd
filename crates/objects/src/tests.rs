use super::*;
use object_store::memory::InMemory;
use proptest::prelude::*;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

struct Place {
    runtime: Runtime,
    store: Arc<InMemory>,
    objects: Objects,
}

impl Place {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let store = Arc::new(InMemory::new());
        let objects = Objects::new(store.clone(), "kept/here", 2);
        Self { runtime, store, objects }
    }

    fn put(&self, folder: &Folder, content: &[u8]) -> Result<Stored, Error> {
        let mut upload = self.objects.put(folder.clone(), self.runtime.handle().clone());
        upload.write_all(content).unwrap();
        upload.finish()
    }

    fn get(&self, folder: &Folder, stored: &Stored) -> Result<Vec<u8>, String> {
        let runtime = self.runtime.handle().clone();
        let download = self.objects.get(folder.clone(), &stored.digest, runtime);
        let mut download = self.runtime.block_on(download).map_err(|error| error.to_string())?;
        let mut content = Vec::new();
        download.read_to_end(&mut content).map_err(|error| error.to_string())?;
        Ok(content)
    }

    fn paths(&self) -> Vec<Path> {
        let all = self.store.list(None).map_ok(|object| object.location);
        self.runtime.block_on(all.try_collect()).unwrap()
    }

    fn replace(&self, path: &Path, content: Vec<u8>) {
        self.runtime.block_on(self.store.put(path, content.into())).unwrap();
    }
}

fn folder(name: &str) -> Folder {
    Folder::new(["space", name]).unwrap()
}

/// Content of more than two parts, no two of which are alike.
fn long() -> Vec<u8> {
    (0..2 * PART_BYTES + 77).map(|at| (at % 251) as u8 ^ (at >> 16) as u8).collect()
}

#[test]
fn what_was_put_is_got() {
    let place = Place::new();
    for content in [Vec::new(), b"short".to_vec(), vec![7; PART_BYTES], long()] {
        let stored = place.put(&folder("one"), &content).unwrap();
        assert_eq!(stored.size_bytes, content.len() as u64);
        assert_eq!(place.get(&folder("one"), &stored), Ok(content));
    }
}

#[test]
fn the_same_again_finds_what_is_there() {
    let place = Place::new();
    let first = place.put(&folder("one"), &long()).unwrap();
    let there = place.paths();
    assert_eq!(there.len(), 4, "three parts and their list: {there:?}");
    assert_eq!(place.put(&folder("one"), &long()).unwrap(), first);
    assert_eq!(place.paths(), there);
}

#[test]
fn folders_share_nothing() {
    let place = Place::new();
    place.put(&folder("one"), b"the same").unwrap();
    let stored = place.put(&folder("other"), b"the same").unwrap();
    assert_eq!(place.paths().len(), 4);
    place.runtime.block_on(place.objects.remove(&folder("one"))).unwrap();
    assert_eq!(place.get(&folder("other"), &stored), Ok(b"the same".to_vec()));
    // Removing it again is not a failure.
    place.runtime.block_on(place.objects.remove(&folder("one"))).unwrap();
}

#[test]
fn a_wrong_byte_anywhere_is_an_error_and_not_handed_on() {
    let place = Place::new();
    let content = long();
    let stored = place.put(&folder("one"), &content).unwrap();
    for path in place.paths() {
        let whole = place.runtime.block_on(async {
            place.store.get(&path).await.unwrap().bytes().await.unwrap().to_vec()
        });
        let mut wrong = whole.clone();
        wrong[whole.len() / 2] ^= 1;
        for bad in [wrong, whole[..whole.len() - 1].to_vec(), Vec::new()] {
            place.replace(&path, bad);
            let got = place.get(&folder("one"), &stored).unwrap_err();
            assert!(got.contains("is not what was stored"), "{got}");
        }
        place.replace(&path, whole);
    }
    assert_eq!(place.get(&folder("one"), &stored), Ok(content));
}

#[test]
fn a_part_of_another_size_is_not_taken_for_the_same() {
    let place = Place::new();
    place.put(&folder("one"), b"content").unwrap();
    for path in place.paths() {
        place.replace(&path, b"cut".to_vec());
    }
    let again = place.put(&folder("one"), b"content");
    assert!(matches!(again, Err(Error::Corrupt(_))), "{again:?}");
}

/// Reads a request with a body, and returns what its head says.
fn read_request(stream: &mut TcpStream) -> String {
    let (mut got, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut piece).unwrap();
        got.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&got).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let fields = head.lines().filter_map(|line| line.split_once(": "));
        let length = fields
            .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .find_map(|(_, value)| value.parse().ok());
        if length.is_none_or(|length: usize| body.len() >= length) {
            return head.to_owned();
        }
    }
}

#[test]
fn a_put_whose_connection_broke_is_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let service = std::thread::spawn(move || {
        let (mut cut, _) = listener.accept().unwrap();
        let _ = cut.read(&mut [0; 1]).unwrap();
        // Unread bytes make the end a reset: the client cannot know what became of its request.
        drop(cut);
        let (mut stream, _) = listener.accept().unwrap();
        let mut heads = Vec::new();
        for _ in 0..2 {
            heads.push(read_request(&mut stream));
            let answer = "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer.as_bytes()).unwrap();
        }
        heads
    });
    let settings = Settings {
        endpoint,
        bucket: "bucket".into(),
        region: "here".into(),
        key_id: "key".into(),
        secret: Secret::new("secret"),
        prefix: String::new(),
        parallel: 1,
        timeout: Duration::from_secs(20),
        retries: 1,
    };
    let place = Place::new();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let objects = Objects::open(&settings).unwrap();
    let mut upload = objects.put(folder("one"), place.runtime.handle().clone());
    upload.write_all(b"content").unwrap();
    upload.finish().unwrap();
    let heads = service.join().unwrap();
    assert!(heads.iter().all(|head| head.starts_with("PUT ")), "{heads:?}");
}

#[test]
fn what_is_gone_is_said_to_be() {
    let place = Place::new();
    let stored = place.put(&folder("one"), b"content").unwrap();
    place.runtime.block_on(place.objects.remove(&folder("one"))).unwrap();
    assert!(place.get(&folder("one"), &stored).unwrap_err().contains("is gone"));
}

#[test]
fn folders_are_listed() {
    let place = Place::new();
    let (one, other) = (folder("one"), Folder::new(["other-space", "one"]).unwrap());
    place.put(&one, b"a").unwrap();
    place.put(&other, b"b").unwrap();
    let mut found = place.runtime.block_on(place.objects.folders()).unwrap();
    found.sort();
    assert_eq!(found, [other, one]);
    // Folders next to the prefix are not listed.
    let beside = Objects { prefix: Path::from("kept/there"), ..place.objects.clone() };
    assert_eq!(place.runtime.block_on(beside.folders()).unwrap(), []);
}

#[test]
fn a_secret_is_not_shown() {
    let secret = Secret::new("do not tell");
    assert!(!format!("{secret:?}").contains("tell"));
}

proptest! {
    #[test]
    fn no_name_leads_out_of_its_folder(name in "\\PC*") {
        if let Some(folder) = Folder::new([name.as_str()]) {
            prop_assert!(!name.is_empty() && !name.contains(['/', '.', '%']));
            prop_assert_eq!(folder.names().count(), 1);
        }
    }

    #[test]
    fn digests_are_what_they_look_like(text in "[0-9a-fA-F]{60,66}") {
        let good = text.len() == 64 && text == text.to_lowercase();
        prop_assert_eq!(Digest::try_from(text).is_ok(), good);
    }
}
