& {
# Makes this Windows host a node. It downloads the daemon's program from the API server, checks it, and starts it.
# You may run it again.
$ErrorActionPreference = 'Stop'; $ProgressPreference = 'SilentlyContinue'
$join = '{{.JSON}}' | ConvertFrom-Json
$folder = Join-Path $env:USERPROFILE '{{.Folder}}'
$program = Join-Path $folder '{{.Program}}'
$ca = Join-Path $folder 'ca.crt'
$part = $program + '.part'
New-Item -ItemType Directory -Force -Path $folder | Out-Null
if (-not (Test-Path -LiteralPath $program)) {
    Set-Content -LiteralPath $ca -Encoding Ascii -Value $join.attendance.ca
    Write-Output 'Downloading the daemon from the API server.'
    $header = 'header = "Authorization: Bearer ' + $join.attendance.token + '"'
    foreach ($try in 1..20) {
        $header | curl.exe -q --config - --fail --silent --show-error --ssl-no-revoke --cacert $ca --connect-timeout 20 --speed-limit 1000 --speed-time 60 --continue-at - --output $part {{.Connect}}--url '{{.URL}}'
        if ($LASTEXITCODE -notin 6, 7, 18, 22, 28, 35, 52, 55, 56) { break }
        Start-Sleep -Seconds 10
    }
    if ($LASTEXITCODE -ne 0) { throw "The download failed (curl error $LASTEXITCODE). Check that this host reaches $($join.attendance.apiServer), that no proxy replaces its certificate, that the token has not expired, and that curl.exe is version 7.60 or later." }
    Move-Item -LiteralPath $part -Destination $program
}
if ((Get-FileHash -LiteralPath $program -Algorithm SHA256).Hash -ne $join.program.sha256) {
    Remove-Item -LiteralPath $program
    throw 'The downloaded program is not the expected one. Run the command again.'
}
$join.attendance | ConvertTo-Json -Compress | & $program attend
if ($LASTEXITCODE -ne 0) { throw "The host did not join (exit code $LASTEXITCODE). See the message above." }
}
