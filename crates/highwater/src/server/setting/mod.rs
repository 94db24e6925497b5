//! How is a setting written: parsed, shown as a default, and described in help texts?

pub(super) mod value;

use core::fmt::Display;
use core::ops::RangeInclusive;
use core::str::FromStr;
use core::time::Duration;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::choice::Choice;

/// Why a value is refused and, after a semicolon, what to write instead.
type Parsed<T> = Result<T, String>;

type Parse<T> = dyn Fn(&str) -> Parsed<T> + Send + Sync;
type Set<C> = dyn Fn(&mut C, &str) -> Parsed<()> + Send + Sync;

/// How values of `T` are written.
pub(super) struct Form<T> {
    /// Stands for the value in help texts.
    placeholder: String,
    parse: Box<Parse<T>>,
    /// As it would be written.
    show: Box<dyn Fn(&T) -> String + Send + Sync>,
    /// The default in words, where no value can be shown.
    default: Option<&'static str>,
    /// Takes in one of several values; `None` if there is only one.
    add: Option<fn(&mut T, T)>,
}

impl<T: 'static> Form<T> {
    fn new(
        placeholder: impl Into<String>,
        parse: impl Fn(&str) -> Parsed<T> + Send + Sync + 'static,
        show: impl Fn(&T) -> String + Send + Sync + 'static,
    ) -> Self {
        let (parse, show) = (Box::new(parse), Box::new(show));
        let placeholder = placeholder.into();
        Form { placeholder, parse, show, default: None, add: None }
    }

    /// The same, or `word` for none.
    pub(super) fn or(self, word: &'static str) -> Form<Option<T>> {
        let Form { placeholder, parse, show, .. } = self;
        let parse = move |text: &str| match text {
            _ if text == word => Ok(None),
            _ => parse(text).map(Some).map_err(|error| format!("{error}, or {word}")),
        };
        let show = move |value: &Option<T>| value.as_ref().map_or(word.to_owned(), &show);
        Form::new(format!("{placeholder}|{word}"), parse, show)
    }

    /// The same, or nothing, with the effect that `default` describes.
    pub(super) fn optional(self, default: &'static str) -> Form<Option<T>> {
        let Form { placeholder, parse, show, .. } = self;
        let show = move |value: &Option<T>| value.as_ref().map_or_else(String::new, &show);
        let parse = move |text: &str| parse(text).map(Some);
        Form::new(placeholder, parse, show).described(default)
    }

    /// The same; help texts describe the default as `default`.
    pub(super) fn described(self, default: &'static str) -> Self {
        Form { default: Some(default), ..self }
    }

    /// Any number of them.
    pub(super) fn several(self, default: &'static str) -> Form<Vec<T>> {
        let Form { placeholder, parse, show, .. } = self;
        let show = move |values: &Vec<T>| values.iter().map(&show).collect::<Vec<_>>().join(" ");
        let parse = move |text: &str| parse(text).map(|value| vec![value]);
        let several = Form::new(placeholder, parse, show).described(default);
        Form { add: Some(|all, more| all.extend(more)), ..several }
    }
}

/// A time within `range`, in milliseconds.
pub(super) fn time(range: RangeInclusive<Duration>) -> Form<Duration> {
    let show = |time: &Duration| match time.subsec_millis() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    };
    Form::new("TIME", value::duration(range), show)
}

/// A number of bytes within `range`.
pub(super) fn size<T>(range: RangeInclusive<u64>) -> Form<T>
where
    T: TryFrom<u64> + TryInto<u64> + Copy + 'static,
{
    let parse = value::size(range);
    let parse = move |text: &str| T::try_from(parse(text)?).map_err(|_| "too large".to_owned());
    let show = |size: &T| value::bytes((*size).try_into().unwrap_or(u64::MAX)).to_string();
    Form::new("SIZE", parse, show)
}

/// A whole number within `range`.
pub(super) fn number<T>(range: RangeInclusive<T>) -> Form<T>
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    Form::new("N", value::number(range), T::to_string)
}

/// An address to listen on.
pub(super) fn address() -> Form<SocketAddr> {
    Form::new("ADDRESS", value::address, SocketAddr::to_string)
}

/// Whatever the type takes.
pub(super) fn text<T>(placeholder: &str) -> Form<T>
where
    T: FromStr<Err = String> + Display + 'static,
{
    Form::new(placeholder, str::parse, T::to_string)
}

/// The name of a file, which need not exist yet.
pub(super) fn file() -> Form<PathBuf> {
    let parse = |text: &str| match text.is_empty() || text.chars().any(char::is_control) {
        true => Err("not the name of a file; use a path, such as /etc/ssl/site.pem".to_owned()),
        false => Ok(PathBuf::from(text)),
    };
    Form::new("FILE", parse, |path: &PathBuf| path.display().to_string())
}

/// One of several names.
pub(super) fn choice<T: Choice + 'static>() -> Form<T> {
    text(&T::NAMES.join("|"))
}

/// `on` or `off`.
pub(super) fn switch() -> Form<bool> {
    let show = |is_on: &bool| if *is_on { "on" } else { "off" }.to_owned();
    Form::new("on|off", value::one_of(&[("on", true), ("off", false)]), show)
}

/// One setting of `C`: the name of its flag, its variable and its key, and how its value gets into `C`.
pub(super) struct Setting<C> {
    /// The name, with underscores.
    pub(super) id: &'static str,
    /// What it is, for operators.
    pub(super) help: &'static str,
    /// Stands for the value in help texts.
    pub(super) placeholder: String,
    /// As it would be written.
    pub(super) default: Result<String, &'static str>,
    /// It may be given several times; a variable holds them all, with spaces between.
    pub(super) is_list: bool,
    set: Arc<Set<C>>,
}

impl<C: Default + 'static> Setting<C> {
    /// The setting that is kept in `place`.
    pub(super) fn new<T: 'static>(
        id: &'static str,
        help: &'static str,
        form: Form<T>,
        place: fn(&mut C) -> &mut T,
    ) -> Self {
        let Form { placeholder, parse, show, default, add } = form;
        let default = default.map_or_else(|| Ok(show(place(&mut C::default()))), Err);
        let set = move |config: &mut C, text: &str| {
            let (place, value) = (place(config), parse(text)?);
            match add {
                Some(add) => add(place, value),
                None => *place = value,
            }
            Ok(())
        };
        let (is_list, set) = (add.is_some(), Arc::new(set));
        Setting { id, help, placeholder, default, is_list, set }
    }

    /// The name of its flag, and its key in a file.
    pub(super) fn name(&self) -> String {
        self.id.replace('_', "-")
    }

    /// Sets it in `config`, to the value written as `text`.
    pub(super) fn set(&self, config: &mut C, text: &str) -> Parsed<()> {
        (self.set)(config, text)
    }

    /// As an argument of a command, whose values are texts that [`Setting::set`] takes.
    pub(super) fn arg(&self) -> clap::Arg {
        use clap::ArgAction::{Append, Set};
        let set = Arc::clone(&self.set);
        let check = move |text: &str| set(&mut C::default(), text).map(|()| text.to_owned());
        // A negative number is refused with the range, not taken for a flag.
        let arg = clap::Arg::new(self.id)
            .long(self.name())
            .value_name(self.placeholder.clone())
            .value_parser(check)
            .allow_negative_numbers(true);
        let arg = if self.is_list { arg.action(Append) } else { arg.action(Set) };
        match &self.default {
            Ok(value) => arg.help(self.help).default_value(value.clone()),
            Err(words) => arg.help(format!("{} [default: {words}]", self.help)),
        }
    }
}
