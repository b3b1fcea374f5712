package sshd

import "strings"

// windowsPath converts a path of SFTP to a Windows path. OpenSSH for Windows uses paths such as
// /C:/Users/Administrator. If a client sends C:/x or C:\x, the SFTP library puts the home directory before this path.
// windowsPath ignores the home directory in such a path. For the root /, it returns an empty string, because the root
// isn't a directory on Windows.
func windowsPath(p string) string {
	var parts []string
	for part := range strings.FieldsFuncSeq(p, func(r rune) bool { return r == '/' || r == '\\' }) {
		switch {
		case part == ".":
		case part == "..":
			if len(parts) > 1 {
				parts = parts[:len(parts)-1]
			}
		case isDrive(part):
			parts = []string{strings.ToUpper(part)}
		case len(parts) == 0: // "/x" is the path x on the current drive
			parts = []string{"C:", part}
		default:
			parts = append(parts, part)
		}
	}
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return parts[0] + `\`
	}
	return strings.Join(parts, `\`)
}

func isDrive(part string) bool {
	return len(part) == 2 && part[1] == ':' && (part[0]|0x20) >= 'a' && (part[0]|0x20) <= 'z'
}

// sftpPath converts an absolute Windows path to a path of SFTP.
func sftpPath(p string) string {
	return "/" + strings.TrimSuffix(strings.ReplaceAll(p, `\`, "/"), "/")
}
