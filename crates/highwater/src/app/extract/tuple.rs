//! Several extractors as one: what a resource's context, or an extractor of an application's own, takes.

use super::{Begun, BodyUse, Error, FromRequest, Request, Requirements};

/// How two extractors of one tuple use the body: at most one of them may.
const fn either(left: BodyUse, right: BodyUse) -> BodyUse {
    match (left, right) {
        (BodyUse::None, used) | (used, BodyUse::None) => used,
        _ => panic!("two extractors of one tuple read the request's content, which only one can"),
    }
}

macro_rules! implement_for_arity {
    ($($part:ident)*) => {
        /// Extracts all of them, from left to right.
        impl<$($part: FromRequest),*> FromRequest for ($($part,)*) {
            const BODY: BodyUse = {
                let used = BodyUse::None;
                $(let used = either(used, $part::BODY);)*
                used
            };
            const PEER: bool = false $(|| $part::PEER)*;
            const CONNECT: bool = false $(|| $part::CONNECT)*;
            const AWAITS: bool = false $(|| $part::AWAITS)*;
            const SERVICE: bool = false $(|| $part::SERVICE)*;

            #[inline]
            fn from_request(request: &Request<'_>) -> Result<Self, Error> {
                Ok(($($part::from_request(request)?,)*))
            }

            fn is_present(request: &Request<'_>) -> bool {
                true $(&& $part::is_present(request))*
            }

            fn requires(requirements: &mut Requirements) {
                $($part::requires(requirements);)*
            }

            #[allow(non_snake_case, reason = "a type parameter's name is the variable's, too")]
            fn begin(request: &Request<'_>) -> Begun<Self>
            where
                Self: 'static,
            {
                if !Self::AWAITS {
                    return Begun::ready(Self::from_request(request));
                }
                $(let $part = $part::begin(request);)*
                Begun::later(async move { Ok(($($part.end().await?,)*)) })
            }
        }
    };
}

implement_for_arity!(A B);
implement_for_arity!(A B C);
implement_for_arity!(A B C D);
