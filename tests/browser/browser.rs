//! A real browser, driven over the DevTools protocol through two pipes (`scripts/services/chromium.sh`).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use highwater_skip::skip;
use highwater_testkit::{PATIENCE, program, within};
use highwater_tests::source;
use serde_json::{Value, json};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// One browser at a time: each takes all that a small machine has.
static ONE: Mutex<()> = Mutex::new(());

/// A browser with one page. Ends when dropped, or when we end.
pub(crate) struct Browser {
    child: Child,
    say: Option<ChildStdin>,
    received: Receiver<Value>,
    session: Value,
    last_id: u64,
    complaints: Vec<Complaint>,
    _one: MutexGuard<'static, ()>,
}

/// Something that a developer would see in red.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    /// Who complains: `exception`, `console`, or a source of the browser's own log, like `network`.
    pub(crate) source: String,
    pub(crate) text: String,
}

fn script() -> Command {
    let script = source::root().join("scripts/services/chromium.sh");
    program(&script.to_string_lossy())
}

impl Browser {
    /// Starts a browser; `None` where there is none, which is said.
    pub(crate) fn start() -> Option<Browser> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        match script().arg("path").output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                skip("chromium", String::from_utf8_lossy(&output.stderr));
                return None;
            }
            Err(error) => {
                skip("setpriv", error);
                return None;
            }
        }
        let mut child = script()
            .arg("pipe")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it ran a moment ago");
        let say = child.stdin.take();
        let from = BufReader::new(child.stdout.take().expect("it was asked for"));
        let (tell, received) = mpsc::channel();
        thread::spawn(move || {
            for message in from.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("the protocol is JSON");
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            child,
            say,
            received,
            session: Value::Null,
            last_id: 0,
            complaints: Vec::new(),
            _one: one,
        };
        let made = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": made["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", target)["sessionId"].clone();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the protocol, and waits for its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        let say = self.say.as_mut().expect("it is taken at the end only");
        say.write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        let until = Instant::now() + PATIENCE;
        loop {
            match self.received.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(message) if message["id"] == id => {
                    assert!(message["error"].is_null(), "{method}: {message}");
                    return message["result"].clone();
                }
                Ok(event) => self.complaints.extend(complaint(&event)),
                Err(error @ (RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) => {
                    panic!("{method}: no answer of the browser: {error}")
                }
            }
        }
    }

    /// Opens a page.
    pub(crate) fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// The text of the element with this id.
    pub(crate) fn text(&mut self, id: &str) -> String {
        let value = self.value(&format!("document.getElementById({id:?})?.innerText ?? ''"));
        value.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// If it does not become true; the message has what the page says then.
    pub(crate) fn until(&mut self, expression: &str) {
        let until = Instant::now() + PATIENCE;
        // While a page is loaded there may be nothing to ask.
        let careful =
            format!("(() => {{ try {{ return !!({expression}) }} catch {{ return false }} }})()");
        while self.value(&careful) != Value::Bool(true) {
            if Instant::now() >= until {
                let page = self.value("document.body?.innerText");
                panic!("never: {expression}\n{page:#}\n{:?}", self.complaints);
            }
            thread::sleep(LOOK);
        }
    }

    /// Presses a key that writes a character.
    pub(crate) fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "text": key }));
        }
    }

    /// Pretends that the system is set to `light` or `dark`.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Pretends to have a screen of this size.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// What was complained of since the last time.
    pub(crate) fn complaints(&mut self) -> Vec<Complaint> {
        // Whatever was said before this answer has been heard with it.
        self.value("0");
        std::mem::take(&mut self.complaints)
    }
}

/// What an event complains of, if it does.
fn complaint(event: &Value) -> Option<Complaint> {
    let (params, text) =
        (&event["params"], |value: &Value| value.as_str().unwrap_or_default().to_owned());
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(Complaint {
            source: "exception".to_owned(),
            text: params["exceptionDetails"].to_string(),
        }),
        "Runtime.consoleAPICalled" if params["type"] == "error" || params["type"] == "warning" => {
            Some(Complaint { source: "console".to_owned(), text: params["args"].to_string() })
        }
        "Log.entryAdded" if params["entry"]["level"] == "error" => Some(Complaint {
            source: text(&params["entry"]["source"]),
            text: text(&params["entry"]["text"]),
        }),
        _ => None,
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of its input is its end, and it removes its profile then.
        drop(self.say.take());
        within(PATIENCE, || matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
