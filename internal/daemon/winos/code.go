package winos

import "io/fs"

// win32OfHRESULT is the upper half of an HRESULT whose lower half is a Win32 error code.
const win32OfHRESULT = 0x8007

// For a Windows error code (Win32 or HRESULT), meaning returns the matching error of this package or of io/fs, or nil.
// Codes: https://learn.microsoft.com/en-us/windows/win32/debug/system-error-codes.
func meaning(code uint32) error {
	if code>>16 == win32OfHRESULT {
		code &= 0xffff
	}
	switch code {
	case
		2,    // ERROR_FILE_NOT_FOUND
		3,    // ERROR_PATH_NOT_FOUND
		15,   // ERROR_INVALID_DRIVE
		21,   // ERROR_NOT_READY: a drive letter without a medium
		53,   // ERROR_BAD_NETPATH
		67,   // ERROR_BAD_NET_NAME
		1006: // ERROR_FILE_INVALID: the volume was changed under an open file
		return fs.ErrNotExist
	case
		1060,       // ERROR_SERVICE_DOES_NOT_EXIST
		1168,       // ERROR_NOT_FOUND
		0x800f080c, // CBS_E_UNKNOWN_UPDATE: no Windows feature of that name
		0x80092004: // CRYPT_E_NOT_FOUND
		return ErrNotFound
	case
		32,   // ERROR_SHARING_VIOLATION
		33,   // ERROR_LOCK_VIOLATION
		170,  // ERROR_BUSY
		303,  // ERROR_DELETE_PENDING
		1051, // ERROR_DEPENDENT_SERVICES_RUNNING
		1056, // ERROR_SERVICE_ALREADY_RUNNING
		1061, // ERROR_SERVICE_CANNOT_ACCEPT_CTRL: the service is starting or stopping
		1072, // ERROR_SERVICE_MARKED_FOR_DELETE
		1224: // ERROR_USER_MAPPED_FILE
		return ErrInUse
	case
		123,  // ERROR_INVALID_NAME
		161,  // ERROR_BAD_PATHNAME
		206,  // ERROR_FILENAME_EXCED_RANGE
		1210, // ERROR_INVALID_COMPUTERNAME
		1213: // ERROR_INVALID_SERVICENAME
		return ErrInvalidName
	case
		39,   // ERROR_HANDLE_DISK_FULL
		112,  // ERROR_DISK_FULL
		1295: // ERROR_DISK_QUOTA_EXCEEDED
		return ErrNoSpace
	case
		193,  // ERROR_BAD_EXE_FORMAT
		1053, // ERROR_SERVICE_REQUEST_TIMEOUT: the process did not report to the service manager
		1054, // ERROR_SERVICE_NO_THREAD
		1058, // ERROR_SERVICE_DISABLED
		1066, // ERROR_SERVICE_SPECIFIC_ERROR
		1067, // ERROR_PROCESS_ABORTED
		1068, // ERROR_SERVICE_DEPENDENCY_FAIL
		1069, // ERROR_SERVICE_LOGON_FAILED
		1070, // ERROR_SERVICE_START_HANG
		1075, // ERROR_SERVICE_DEPENDENCY_DELETED
		1079, // ERROR_DIFFERENT_SERVICE_ACCOUNT
		1083: // ERROR_SERVICE_NOT_IN_EXE
		return ErrStartFailed
	case
		5,    // ERROR_ACCESS_DENIED
		19,   // ERROR_WRITE_PROTECT
		740,  // ERROR_ELEVATION_REQUIRED
		1307, // ERROR_INVALID_OWNER
		1314: // ERROR_PRIVILEGE_NOT_HELD
		return ErrDenied
	case
		1,          // ERROR_INVALID_FUNCTION
		50,         // ERROR_NOT_SUPPORTED
		120,        // ERROR_CALL_NOT_IMPLEMENTED
		126,        // ERROR_MOD_NOT_FOUND: the DLL is absent
		127,        // ERROR_PROC_NOT_FOUND: the DLL lacks the function
		1722,       // RPC_S_SERVER_UNAVAILABLE
		1753,       // EPT_S_NOT_REGISTERED
		0x80004001, // E_NOTIMPL
		0x80040154: // REGDB_E_CLASSNOTREG
		return ErrUnsupported
	}
	return nil
}
