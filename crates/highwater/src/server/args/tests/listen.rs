//! Where a server listens: one place or several, from each source.

use super::*;

/// Purpose: several listeners can be given in all three ways: by repeating the flag, with spaces in the variable, and as
/// a list in the file. A better source replaces them all.
#[test]
fn several_listeners() {
    let two = ["0.0.0.0:80", "unix:/run/app.sock,mode=660"];
    let expected: Vec<Listen> = two.iter().map(|text| text.parse().expect("it is right")).collect();
    assert_eq!(given(&["--listen", two[0], "--listen", two[1]], &[]).listen, expected);
    let variable = two.join(" ");
    assert_eq!(given(&[], &[("HIGHWATER_LISTEN", &variable)]).listen, expected);
    let file = TempFile::new(&format!("listen = [{:?}, {:?}]\n", two[0], two[1]));
    let from_file = ["--config", file.path()];
    assert_eq!(given(&from_file, &[]).listen, expected);
    let one = [("HIGHWATER_LISTEN", "[::1]:81,http1")];
    assert_eq!(given(&from_file, &one).listen, ["[::1]:81,http1".parse().expect("it is right")]);
    assert_eq!(given(&[], &[]).listen, []);
}

/// Purpose: a space separates values in a variable only, where there is no other way; the name of a file may have one.
#[test]
fn spaces_in_values() {
    let name = "/etc/my certs/site.pem";
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(given(&["--tls-cert", name], &[]).tls_cert, paths(&[name]));
    let file = TempFile::new(&format!("tls-cert = [{name:?}, \"/b\"]\ntls-key = {name:?}\n"));
    let from_file = given(&["--config", file.path()], &[]);
    assert_eq!(from_file.tls_cert, paths(&[name, "/b"]));
    assert_eq!(from_file.tls_key, paths(&[name]));
    let variable = given(&[], &[("HIGHWATER_TLS_CERT", "/a  /b ")]);
    assert_eq!(variable.tls_cert, paths(&["/a", "/b"]));
}

/// Purpose: a mistake in one of several listeners is reported with that one, and one that is listed twice is refused.
#[test]
fn mistakes_in_listeners() {
    let required = ("PROVIDER_URL", "x");
    assert_eq!(
        complaint(&["--listen=127.0.0.1:80", "--listen=127.0.0.1:81,ssl"], &[required]),
        "--listen \"127.0.0.1:81,ssl\" (from a flag): the option \"ssl\" is unknown; use proxy, tls, http1 or http2, and \
         mode=OCTAL for Unix sockets"
    );
    assert_eq!(
        complaint(&[], &[required, ("HIGHWATER_LISTEN", "127.0.0.1:80 localhost:81")]),
        "--listen \"localhost:81\" (from variable HIGHWATER_LISTEN): a name is not an address; use 127.0.0.1:81"
    );
    assert_eq!(
        complaint(&["--listen", "unix:/s", "--listen", "unix:/s,mode=660"], &[required]),
        "--listen \"unix:/s\" (from a flag): listed twice; leave one out"
    );
    assert_eq!(
        complaint(&["--listen", "0.0.0.0:80", "--listen", "127.0.0.1:9090"], &[required]),
        "--listen \"127.0.0.1:9090\" (from a flag): the same as --metrics; use another port, or --metrics off"
    );
}

/// Purpose: an empty list is refused: it does not mean the default address, and it does not mean none.
#[test]
fn no_listeners() {
    let file = TempFile::new("\nlisten = []\n");
    assert_eq!(
        complaint(&["--config", file.path()], &[("PROVIDER_URL", "x")]),
        format!(
            "--listen [] (from {}:2): names no address; name one, such as \"127.0.0.1:8080\", or leave the key out",
            file.path()
        )
    );
    let better = given(&["--config", file.path(), "--listen", "127.0.0.1:80"], &[]);
    assert_eq!(better.listen, ["127.0.0.1:80".parse().expect("it is right")], "a flag wins");
    let tags = TempFile::new("tag = []\n");
    given(&["--config", tags.path()], &[]); // Where none is a value, an empty list says so.
}

/// Purpose: a listener that trusts the headers of proxies must know which, or any client could claim any address.
#[test]
fn proxies_are_named() {
    let required = ("PROVIDER_URL", "x");
    assert_eq!(
        complaint(&["--listen", "0.0.0.0:80,proxy,http1"], &[required]),
        "--listen \"0.0.0.0:80,proxy,http1\" (from a flag): only trusted proxies may say who their clients are, and \
         none is trusted; set trusted-proxies, such as --trusted-proxies 10.0.0.0/8, or leave out the option proxy"
    );
    given(&["--listen", "0.0.0.0:80,proxy", "--trusted-proxies", "10.0.0.0/8"], &[]);
    given(&["--listen", "unix:/s,proxy", "--trusted-proxies", "unix"], &[]);
}

/// Purpose: two listeners on one address would share its connections; the setting that was given is named.
#[test]
fn both_listeners_on_one_address_are_refused() {
    let required = ("PROVIDER_URL", "x");
    assert_eq!(
        complaint(&["--listen", "127.0.0.1:9090"], &[required]),
        "--listen \"127.0.0.1:9090\" (from a flag): the same as --metrics; use another port, or \
         --metrics off"
    );
    assert_eq!(
        complaint(&[], &[required, ("HIGHWATER_METRICS", "127.0.0.1:8080")]),
        "--metrics \"127.0.0.1:8080\" (from variable HIGHWATER_METRICS): the same as --listen; use \
         another port, or --metrics off"
    );
    // A program that says itself where it listens does not listen at the default.
    let metrics = [("PROVIDER_URL", "x"), ("HIGHWATER_METRICS", "127.0.0.1:8080")];
    let variables = metrics.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let program = [OsString::from("service")];
    let read = read::<Args>(program, variables, |_| Vec::new(), false).expect("it is right");
    assert_eq!(read.server.metrics, Some("127.0.0.1:8080".parse().expect("it is one")));
    given(&["--listen", "127.0.0.1:9090", "--metrics=off"], &[]);
    given(&["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"], &[]);
}

/// Purpose: where other servers have a port, a user is told to write an address to listen on.
#[test]
fn a_port_is_part_of_an_address() {
    assert_eq!(
        complaint(&[], &[("HIGHWATER_PORT", "3000")]),
        "unknown variable HIGHWATER_PORT (value \"3000\"); did you mean HIGHWATER_LISTEN=127.0.0.1:3000?"
    );
    let file = TempFile::new("workers = 2\nport = 3000\n");
    assert_eq!(
        complaint(&["--config", file.path()], &[]),
        format!("{}:2: unknown key port; did you mean listen = \"127.0.0.1:3000\"?", file.path())
    );
    for flags in [&["--port", "3000"][..], &["--port=3000"], &["-p", "3000"]] {
        let error = run(flags, &[("PROVIDER_URL", "http://x")]).expect_err("there is none");
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.contains("a similar argument exists: '--listen'"), "{flags:?}: {text}");
    }
}

/// Purpose: variables that mean an address to listen on, `HIGHWATER_PORT` among them, do not stop a program that says itself
/// where it listens: there the right one would have no effect either. Others that look misspelt still do.
#[test]
fn a_port_where_no_address_is_read() {
    let read_with = |name: &str| {
        let variables = [("PROVIDER_URL", "x"), (name, "3000")];
        let variables =
            variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        read::<Args>([OsString::from("service")], variables, |_| Vec::new(), false)
    };
    for name in ["HIGHWATER_PORT", "HIGHWATER_LISTN", "HIGHWATER_LISTEN_FILE"] {
        assert!(read_with(name).is_ok(), "{name}");
    }
    let refused = read_with("HIGHWATER_WORKER").expect_err("it is misspelt").to_string();
    assert!(refused.contains("did you mean HIGHWATER_WORKERS?"), "{refused}");
}

/// Purpose: a word that is not a command is called that, also where variables set flags that exclude commands.
#[test]
fn an_unknown_command_is_called_that() {
    for variables in [&[][..], &[("PROVIDER_URL", "http://x"), ("HIGHWATER_WORKERS", "2")]] {
        assert_eq!(complaint(&["ohter"], variables), "unrecognized subcommand 'ohter'");
    }
}
