package contract

// uploadedDigits is how many hex digits of its digest tell one uploaded daemon from another.
const uploadedDigits = 16

// UploadedName is the name in the RPC directory of a daemon's binary with this digest
// (lower-case hex SHA-256).
func UploadedName(digest string) string {
	return "wicd-" + digest[:min(uploadedDigits, len(digest))] + ".exe"
}

// RequestName is the name in the RPC directory of the request of one call. id has letters,
// digits and hyphens only.
func RequestName(id string) string { return id + ".req.json" }

// AnswerName is the name in the RPC directory of the answer of one call.
func AnswerName(id string) string { return id + ".ans.json" }
