//! Handlers learn that their clients have left, whenever that was.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use highwater::server::TransportChoice;
use highwater::{Disconnected, Handler as _, Router, blocking};

use crate::served::{HANG, start};
use crate::transports::on_each_transport;

on_each_transport! {
    /// Purpose: a handler that begins when its client has already left learns it, too. Once, only handlers that ran at that
    /// moment did, and others worked to their end.
    fn a_client_that_left_before(transport) {
        let (sender, receiver) = mpsc::channel();
        let learn = move |disconnected: Disconnected| {
            let sender = sender.clone();
            async move {
                disconnected.await;
                let _ = sender.send(());
                "gone"
            }
        };
        let slow = async || {
            tokio::time::sleep(Duration::from_millis(100)).await;
            "slow"
        };
        let server = start(Router::new().get("/slow", slow).get("/learn", learn), transport);
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        stream.write_all((ask("/slow") + &ask("/learn")).as_bytes()).expect("it is open");
        stream.shutdown(Shutdown::Write).expect("it is open");
        receiver.recv_timeout(HANG).expect("the second handler learns it");
    }

    /// Purpose: a detached handler that blocks is waited for at a drain, although its client has left. Once, only one that awaits
    /// was, and a process that ended took the other's work with it.
    fn detached_work_is_waited_for(transport) {
        let (sender, receiver) = mpsc::channel();
        let work = move || {
            sender.send("begun").expect("somebody listens");
            std::thread::sleep(Duration::from_millis(300));
            sender.send("done").expect("somebody listens");
            "done"
        };
        let mut server = start(Router::new().get("/", blocking(work).detached()), transport);
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("it is open");
        assert_eq!(receiver.recv_timeout(HANG), Ok("begun"));
        drop(stream);
        server.stop().expect("it stops");
        assert_eq!(receiver.try_recv(), Ok("done"));
    }
}
