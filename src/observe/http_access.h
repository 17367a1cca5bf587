// Admits, IsLoopbackOnly - who may ask the HTTP server.
// Why: one secret in two forms. Scrapers, curl and our own verbs send a bearer token; a browser can only
//   ask for a name and a password, so the token is taken as the password of any name, too.
// Thread: free functions; pure.
// Source: RFC 6750 (bearer), RFC 7617 (basic).
#pragma once

#include <string>
#include <string_view>

namespace walpost::observe {

// `authorization` is the request's header of that name, empty when it has none. How long it takes tells
// nothing of `token`, which must not be empty.
bool Admits(std::string_view authorization, std::string_view token);

// Whether nobody but this host reaches what listens on `listen` (http.listen). So does an empty one.
bool IsLoopbackOnly(std::string_view listen);

// Where that is not so and there is no token: what to do.
std::string OpenToAll(std::string_view listen);

}  // namespace walpost::observe
