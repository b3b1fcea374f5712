package contract

import "strings"

// uploadedDigits is the number of hex digits of the digest in the name of an uploaded daemon.
const uploadedDigits = 16

// UploadedName is the name in the RPC directory of a daemon's binary with this digest
// (lower-case hex SHA-256).
func UploadedName(digest string) string {
	return "wicd-" + digest[:min(uploadedDigits, len(digest))] + ".exe"
}

// IsCallID reports whether a text can be the ID of a call: a part of a file's name, and an argument without quotes.
func IsCallID(text string) bool {
	return text != "" && len(text) <= 64 &&
		strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}

// RequestName is the name in the RPC directory of the request of one call.
func RequestName(id string) string { return id + ".req.json" }

// AnswerName is the name in the RPC directory of the answer of one call.
func AnswerName(id string) string { return id + ".ans.json" }
