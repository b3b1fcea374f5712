& {
# Makes this Windows host a node. It downloads the daemon's program from the API server, checks it, and starts it.
# You may run it again.
$ErrorActionPreference = 'Stop'; $ProgressPreference = 'SilentlyContinue'
$join = '{{.JSON}}' | ConvertFrom-Json
$folder = Join-Path $env:USERPROFILE '{{.Folder}}'
$program = Join-Path $folder '{{.Program}}'
New-Item -ItemType Directory -Force -Path $folder | Out-Null
if (-not (Test-Path -LiteralPath $program)) {
    $ca = Join-Path $folder 'ca.crt'
    $part = $program + '.part'
    Set-Content -LiteralPath $ca -Encoding Ascii -Value $join.attendance.ca
    Write-Output 'Downloading the daemon from the API server.'
    'header = "Authorization: Bearer ' + $join.attendance.token + '"' | curl.exe --config - --fail --silent --show-error --retry 5 --ssl-no-revoke --cacert $ca --continue-at - --output $part --url $join.url
    if ($LASTEXITCODE -ne 0) { throw "The download failed (curl error $LASTEXITCODE). Check that this host reaches $($join.attendance.apiServer), that no proxy replaces its certificate, that the token has not expired, and that curl.exe is version 7.60 or later." }
    if ((Get-FileHash -LiteralPath $part -Algorithm SHA256).Hash -ne $join.program.sha256) {
        Remove-Item -LiteralPath $part
        throw 'The downloaded program is not the expected one. Run the command again.'
    }
    Move-Item -LiteralPath $part -Destination $program
}
$join.attendance | ConvertTo-Json -Compress | & $program attend
if ($LASTEXITCODE -ne 0) { throw "The host did not join (exit code $LASTEXITCODE). See the message above." }
}
