//! Files that stay in memory and are sent from there without a copy: every client gets exactly their bytes, however it asks,
//! in the state they were in when they were asked for.
#![forbid(unsafe_code)]

mod answers;
mod secured;
mod served;
mod transports;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

use answers::{Answer, Answers};
use highwater::files::{CACHED_FILE_BYTES_MAX, StaticFiles};
use highwater::server::TransportChoice;
use highwater::{Router, Running, Server, ServerConfig};
use highwater_testkit::{read_some, until_readable};
use secured::Authority;
use served::{HANG, exchange, start};
use tempfile::TempDir;
use transports::on_each_transport;

/// The sizes around which something changes: content is copied or not, a file is kept or read each time.
const SIZES: [usize; 6] = [
    64 * 1024 - 1,
    64 * 1024,
    64 * 1024 + 1,
    300_001,
    CACHED_FILE_BYTES_MAX as usize - 1,
    CACHED_FILE_BYTES_MAX as usize,
];

/// Content in which every place looks different, and different again for another `seed`.
fn pattern(size: usize, seed: u64) -> Vec<u8> {
    let place = |at: u64| (at ^ seed << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
    (0..size as u64).map(|at| place(at) as u8).collect()
}

/// How long after its last change a file is kept: before, the file system's clock may not tell another change from it.
const KEPT_AFTER: Duration = Duration::from_millis(25);

/// Writes a file, and returns when it may be kept.
fn write(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("a file");
    std::thread::sleep(KEPT_AFTER);
}

/// A folder with a file of each size, which has that name.
fn site() -> TempDir {
    let site = tempfile::tempdir().expect("a folder");
    SIZES.iter().for_each(|&size| write(&site.path().join(size.to_string()), &pattern(size, 0)));
    site
}

fn files(site: &TempDir) -> Router {
    Router::new().files("/", StaticFiles::new(site.path()))
}

fn get(server: &Running, path: &str, fields: &str) -> Answer {
    let fields = format!("Connection: close\r\n{fields}");
    exchange(server.address(), &request("GET", path, &fields))
}

fn request(method: &str, path: &str, fields: &str) -> String {
    format!("{method} /{path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

/// Asks until a file is in memory, and in its last place there.
fn warm(server: &Running, path: &str) {
    for _ in 0..3 {
        assert_eq!(get(server, path, "").status, 200);
    }
}

/// The content of the files in memory that this process has open for content.
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
fn in_memory() -> Vec<Vec<u8>> {
    let entries = fs::read_dir("/proc/self/fd").expect("it is mounted");
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_content = |path: &std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("memfd:highwater-content"))
    };
    paths.filter(is_content).filter_map(|path| fs::read(path).ok()).collect()
}

/// The next answer on a connection.
fn next(stream: &mut TcpStream, answers: &mut Answers, rest: &mut Vec<u8>) -> Answer {
    loop {
        if let Some(answer) = answers.next(rest) {
            return answer;
        }
        let mut piece = vec![0; 64 * 1024];
        let len = read_some(stream, &mut piece).expect("it is open");
        assert_ne!(len, 0, "it has closed");
        rest.extend_from_slice(&piece[..len]);
    }
}

fn connect(server: &Running) -> TcpStream {
    let stream = TcpStream::connect_timeout(&server.address(), HANG).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("it is open");
    stream
}

on_each_transport! {
    /// Purpose: files of all sizes are whole from the disk and from memory, on one connection and on many, and `HEAD` says
    /// their length and sends none of them.
    fn whole_files(transport) {
        let site = site();
        let server = start(files(&site), transport);
        let (mut stream, mut answers, mut rest) = (connect(&server), Answers::default(), Vec::new());
        for round in 0..4 {
            for size in SIZES {
                let (path, content) = (size.to_string(), pattern(size, 0));
                stream.write_all(request("GET", &path, "").as_bytes()).expect("it is open");
                let kept = next(&mut stream, &mut answers, &mut rest);
                assert!(kept.bytes == content, "{size}, round {round}, kept connection");
                let own = get(&server, &path, "");
                assert!(own.bytes == content, "{size}, round {round}");
                let length = Some(path.as_str());
                assert!(kept.field("content-length") == length && own.field("content-length") == length);
                let head = request("HEAD", &path, "Connection: close\r\n");
                let mut only = connect(&server);
                only.write_all(head.as_bytes()).expect("it is open");
                let mut all = String::new();
                only.read_to_string(&mut all).expect("it is a head");
                all.make_ascii_lowercase();
                assert!(all.contains(&format!("\r\ncontent-length: {size}\r\n")) && all.ends_with("\r\n\r\n"), "{all}");
            }
        }
    }

    /// Purpose: parts of a file in memory are exactly those bytes, wherever they begin.
    fn parts_of_files(transport) {
        let site = site();
        let server = start(files(&site), transport);
        let size = CACHED_FILE_BYTES_MAX as usize;
        let (path, content) = (size.to_string(), pattern(size, 0));
        warm(&server, &path);
        for (from, to) in [
            (0, size), (1, size), (0, 64 * 1024), (4095, 4096 + 64 * 1024), (4097, 200_000),
            (size - 64 * 1024, size), (size - 64 * 1024 - 1, size - 1), (size - 10, size),
        ] {
            let part = get(&server, &path, &format!("Range: bytes={from}-{}\r\n", to - 1));
            assert_eq!(part.status, 206);
            assert!(part.bytes == content[from..to], "{from}-{to}");
        }
        let several = get(&server, &path, "Range: bytes=0-99999,200000-299999\r\n");
        assert_eq!(several.status, 206);
        let holds = |part: &[u8]| several.bytes.windows(part.len()).any(|window| window == part);
        assert!(holds(&content[..100_000]) && holds(&content[200_000..300_000]));
    }

    /// Purpose: answers behind a file come behind it, whether the client reads at once or later.
    fn answers_behind_a_file(transport) {
        let site = site();
        let server = start(files(&site).get("/small", || "small"), transport);
        let paths = SIZES.map(|size| size.to_string());
        paths.iter().for_each(|path| warm(&server, path));
        let asked: String = paths.iter().map(|path| request("GET", path, "") + &request("GET", "small", "")).collect();
        for is_late in [false, true] {
            let (mut stream, mut answers, mut rest) = (connect(&server), Answers::default(), Vec::new());
            stream.write_all(asked.as_bytes()).expect("it is open");
            if is_late {
                stream.shutdown(Shutdown::Write).expect("it is open");
                until_readable(&stream).expect("it is answered");
            }
            for size in SIZES {
                assert!(next(&mut stream, &mut answers, &mut rest).bytes == pattern(size, 0), "{size}");
                assert_eq!(next(&mut stream, &mut answers, &mut rest).content, "small", "behind {size}");
            }
        }
    }

    /// Purpose: a download under way goes on in the state in which the file was asked for, although the file is changed in
    /// place, cut off, replaced or removed meanwhile; and the next request sees the change.
    fn changed_while_it_is_sent(transport) {
        let size = CACHED_FILE_BYTES_MAX as usize;
        let changes: [fn(&Path); 4] = [
            |path| write(path, &pattern(CACHED_FILE_BYTES_MAX as usize, 7)), // In place.
            |path| fs::File::options().write(true).open(path).expect("it").set_len(70_000).expect("it"),
            |path| {
                let other = path.with_extension("new");
                write(&other, &pattern(200_000, 8));
                fs::rename(other, path).expect("the file");
            },
            |path| fs::remove_file(path).expect("the file"),
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let site = site();
            let server = start(files(&site), transport);
            let path = size.to_string();
            warm(&server, &path);
            // More than the sockets' buffers hold.
            let count = 12;
            let mut stream = connect(&server);
            stream.write_all(request("GET", &path, "").repeat(count).as_bytes()).expect("it is open");
            let (mut answers, mut rest) = (Answers::default(), Vec::new());
            until_readable(&stream).expect("it is answered");
            change(&site.path().join(&path));
            let first = next(&mut stream, &mut answers, &mut rest);
            assert!(first.bytes == pattern(size, 0), "change {index}: the first is of the old state");
            let tag = first.field("etag").expect("one");
            for behind in 1..count {
                let answer = next(&mut stream, &mut answers, &mut rest);
                let is_old = answer.field("etag") == Some(tag);
                assert!(!is_old || answer.bytes == pattern(size, 0), "change {index}: answer {behind}");
            }
            let changed = fs::read(site.path().join(&path)).ok();
            let now = get(&server, &path, "");
            match changed {
                Some(content) => {
                    assert!(now.bytes == content && now.field("etag") != Some(tag), "change {index}");
                }
                None => assert_eq!(now.status, 404),
            }
        }
    }

    /// Purpose: clients that hang up in the middle of a file, politely or not, leave the server as it was.
    fn hanging_up(transport) {
        let site = site();
        let server = start(files(&site), transport);
        let path = CACHED_FILE_BYTES_MAX.to_string();
        warm(&server, &path);
        for round in 0..20 {
            let mut stream = connect(&server);
            stream.write_all(request("GET", &path, "").repeat(12).as_bytes()).expect("it is open");
            if round % 2 == 0 {
                stream.read_exact(&mut [0; 1000]).expect("it is answered");
            }
        }
        assert!(get(&server, &path, "").bytes == pattern(CACHED_FILE_BYTES_MAX as usize, 0));
    }

    /// Purpose: over TLS, where nothing can be sent from a file, the same files arrive.
    fn over_tls(transport) {
        let site = site();
        let authority = Authority::new("our authority");
        let listen = vec!["127.0.0.1:0,tls".parse().expect("it is right")];
        let config = ServerConfig { listen, ..served::config(transport) };
        let server = Server::new(files(&site)).tls(authority.issue(&["localhost"]).tls()).config(config);
        let server = server.start().expect("it starts");
        let mut at = authority.client().connect(server.address(), "localhost").expect("it serves");
        for _ in 0..3 {
            for size in SIZES {
                let answer = at.ask(&request("GET", &size.to_string(), "")).expect("it answers");
                assert!(answer.bytes == pattern(size, 0), "{size}");
                let part = at.ask(&request("GET", &size.to_string(), "Range: bytes=5-65000\r\n")).expect("it answers");
                assert!(part.bytes == pattern(size, 0)[5..=65_000], "a part of {size}");
            }
        }
    }

    /// Purpose: over HTTP/2, where they are cut into frames, the same files arrive, several at a time.
    fn over_http2(transport) {
        let site = site();
        let server = start(files(&site), transport);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it is built");
        let asking = async {
            let stream = tokio::net::TcpStream::connect(server.address()).await.expect("it listens");
            let (client, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
            tokio::spawn(connection);
            for _ in 0..3 {
                let mut reading = Vec::new();
                for size in SIZES {
                    let mut client = client.clone().ready().await.expect("it is open");
                    let asked = http::Request::get(format!("http://h/{size}")).version(http::Version::HTTP_2);
                    let asked = asked.body(()).expect("valid");
                    let answer = client.send_request(asked, true).expect("it is open").0;
                    // All at once: they share the window of the connection.
                    reading.push(tokio::spawn(async move {
                        let mut body = answer.await.expect("it answers").into_body();
                        let mut all = Vec::new();
                        while let Some(piece) = body.data().await {
                            let piece = piece.expect("the answer is complete");
                            body.flow_control().release_capacity(piece.len()).expect("it came");
                            all.extend_from_slice(&piece);
                        }
                        assert!(all == pattern(size, 0), "{size}");
                    }));
                }
                for read in reading {
                    read.await.expect("it is the file");
                }
            }
        };
        runtime.block_on(async { tokio::time::timeout(HANG, asking).await.expect("nothing hangs") });
    }
}

/// Purpose: a file that is asked for again is in a file in memory, where the kernel can send it from; one that is asked
/// for once, or is small, takes no descriptor.
#[test]
#[cfg(all(target_os = "linux", not(highwater_portable_only)))]
fn which_files_are_in_memory() {
    let site = tempfile::tempdir().expect("a folder");
    let (again, once, small) = (pattern(100_000, 1), pattern(100_000, 2), pattern(10_000, 3));
    write(&site.path().join("again"), &again);
    write(&site.path().join("once"), &once);
    write(&site.path().join("small"), &small);
    let server = start(files(&site), TransportChoice::Epoll);
    warm(&server, "again");
    warm(&server, "small");
    assert!(get(&server, "once", "").bytes == once);
    let found = in_memory();
    assert!(found.contains(&again));
    assert!(!found.contains(&once) && !found.contains(&small));
}
