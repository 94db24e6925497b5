//! A server in a process of its own, so that what it costs (descriptors, memory, CPU) is its own,
//! and how it ends can be watched.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;

/// A running server. Dropping it kills it, and so does the end of the thread that started it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Where it serves.
    pub address: SocketAddr,
    /// Where its metrics are.
    pub metrics: SocketAddr,
    said: Arc<Mutex<String>>,
}

impl Process {
    /// Runs `program` with `flags` on ports of its own, and waits until it serves. If `descriptors`
    /// are given, it can have no more.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(program: &str, flags: &[&str], descriptors: Option<u32>) -> Self {
        let limit = descriptors.map(|count| format!("ulimit -n {count}; ")).unwrap_or_default();
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("{limit}exec setpriv --pdeathsig KILL \"$0\" \"$@\"")])
            .arg(program)
            .args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--workers", "1"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server can be started");
        let stderr = BufReader::new(child.stderr.take().expect("it was asked for"));
        let said = Arc::new(Mutex::new(String::new()));
        let (tell, told) = mpsc::channel();
        let log = Arc::clone(&said);
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if let (Some(address), Some(metrics)) =
                    (field(&line, "address"), field(&line, "metrics"))
                {
                    // After the first time there is no receiver any more.
                    let _ = tell.send((address, metrics));
                }
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.push_str(&line);
                log.push('\n');
            }
        });
        match told.recv_timeout(Duration::from_secs(20)) {
            Ok((address, metrics)) => Process { child, address, metrics, said },
            Err(_) => {
                // It may have ended by itself.
                let _ = child.kill();
                panic!("the server did not start: {}", said.lock().expect("no panic"));
            }
        }
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard error.
    pub fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A new connection to it.
    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Has it allocate what it allocates once, so that what is allocated from now on is due to what
    /// is done to it from now on. That includes every receive buffer it provides to the kernel.
    ///
    /// # Panics
    /// If it does not serve `/`.
    pub fn warm_up(&self) {
        let mut client = self.connect();
        for _ in 0..2000 {
            assert_eq!(client.get("/").status, 200);
        }
        let mut clients: Vec<Client> = (0..50).map(|_| self.connect()).collect();
        for client in &mut clients {
            client.send(&vec![b'\r'; 64 * 1024]).expect("open");
        }
        for client in &mut clients {
            assert_eq!(client.reply().status, 400);
        }
    }

    /// The descriptors it has open.
    pub fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.id());
        std::fs::read_dir(folder).expect("the process lives").count()
    }

    /// The memory it has resident, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()));
        let status = status.expect("the process lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).expect("VmRSS is a number of kB")
    }

    /// The CPU time it has used.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        let stat = stat.expect("the process lives");
        // Behind the name in parentheses: state, …, and as the 12th and 13th utime and stime.
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
        let ticks: u64 =
            fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10) // USER_HZ is 100 on every Linux there is.
    }

    /// The value of a sample on its metrics page; labels are part of `name`.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.metrics_page();
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.unwrap_or_else(|| panic!("no {name} in {page}"));
        value.parse().expect("samples are numbers")
    }

    /// Its metrics page.
    pub fn metrics_page(&self) -> String {
        Client::connect(self.metrics).get("/metrics").text()
    }

    /// Sends it a signal, by name.
    pub fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.id());
        let status = Command::new("/bin/sh").args(["-c", &command]).status();
        assert!(status.expect("there is a shell").success(), "{command}");
    }

    /// Waits until it ends; `None` if it does not in time.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + timeout;
        loop {
            match self.child.try_wait().expect("it is our child") {
                None if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                other => return other,
            }
        }
    }
}

/// The address that a line of the log has under `name`.
fn field(line: &str, name: &str) -> Option<SocketAddr> {
    let mut words = line.split_whitespace();
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// Waits until `condition` holds, at most so long; returns whether it does.
pub fn eventually(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + timeout;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
